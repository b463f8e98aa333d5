"""What only a scan of the keys can tell: counted on demand, and known until something goes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lastword.cleaner.choose import states_of
from lastword.cleaner.overview import TopicOverview
from lastword.cleaner.plan import over_all
from lastword.cleaner.verdicts import would_mark
from lastword.config import LONG_MAX
from lastword.errors import UnknownTopicError
from lastword.files.reader import FileReader
from lastword.foundation import Foundation
from lastword.model import LogFile, TopicRow
from lastword.passes import PartitionState
from lastword.topic import Topic
from lastword.ui.scans import Scans

_MOST_KNOWN = 1_000


@dataclass(frozen=True)
class LiveKeys:
    """How many keys of a topic had a value, when so many records had been appended."""

    topic: str
    keys: int
    appended: int
    at_ms: int

    def is_exact(self, seen: TopicOverview) -> bool:
        """Whether nothing was appended since."""
        return self.appended == seen.appended


@dataclass(frozen=True)
class Survivors:
    """What a pass over all of a partition, as it was then, would leave; by the base of the segment."""

    partition: int
    log_end: int
    at_ms: int  # later, more tombstones may go
    segments: Mapping[int, int]


class Counts:
    """Safe to use from several threads. What was appended since a count makes it old, not unknown."""

    def __init__(self, base: Foundation, scans: Scans) -> None:
        self._base, self._scans, self._lock = base, scans, threading.Lock()
        self._known: OrderedDict[tuple[object, ...], object] = OrderedDict()

    def keys(self, topic: Topic, seen: TopicOverview) -> LiveKeys:
        """How many keys of a topic have a value."""
        with self._scans.one() as go_on:
            known = self.known_keys(seen)
            if known is not None and known.is_exact(seen):
                return known
            latest = topic.latest(columns=["offset"], progress=go_on)
            count = sum(batch.num_rows for batch in latest.batches())
            found = LiveKeys(topic.name, count, seen.appended, self._base.clock())
            self._know(_log(seen), found)
            return found

    def known_keys(self, seen: TopicOverview) -> LiveKeys | None:
        """The same, if they were counted since the log was last cut off at its start."""
        found = self._known.get(_log(seen))
        return found if isinstance(found, LiveKeys) else None

    def keys_told(self, seen: TopicOverview) -> int:
        """What a visitor is told: the count if it is still exact, else the estimate."""
        known = self.known_keys(seen)
        return known.keys if known and known.is_exact(seen) else seen.keys.probably

    def survivors(self, topic: TopicRow, number: int) -> Survivors:
        """What would be left of each segment of a partition if all of it were cleaned."""
        with self._scans.one() as go_on:
            states = states_of(self._base, [topic])
            state = next((s for s in states if s.row.partition == number), None)
            if state is None:
                raise UnknownTopicError(topic.name, number)
            found = self._count(state, go_on)
            self._know(_partition(state), found)
            return found

    def known_survivors(self, state: PartitionState) -> Survivors | None:
        """The same, if they were counted since something was last removed from the partition."""
        found = self._known.get(_partition(state))
        return found if isinstance(found, Survivors) else None

    def _count(self, state: PartitionState, go_on: Callable[[int], None]) -> Survivors:
        now_ms = self._base.clock()
        covered, marks = would_mark(self._base, over_all(state, now_ms), go_on)
        segments: dict[int, int] = {}
        for file in covered.files:
            found = marks.files.get(file.facts.path)
            left = ~found.dead if found else np.ones(file.facts.records, np.bool_)
            if file.base_offset < covered.log_start:
                left = left & (self._offsets(file) >= covered.log_start)
            count = int(np.count_nonzero(left))
            segments[file.segment_base] = segments.get(file.segment_base, 0) + count
        return Survivors(state.row.partition, state.row.log_end, now_ms, segments)

    def _offsets(self, file: LogFile) -> NDArray[np.int64]:
        reader = FileReader(self._base.root, file)
        row_groups = reader.row_groups(0, LONG_MAX)
        return np.concatenate([reader.read(i, [])["offset"].to_numpy() for i in row_groups])

    def _know(self, what: tuple[object, ...], found: object) -> None:
        with self._lock:
            self._known[what] = found
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)


def _log(seen: TopicOverview) -> tuple[object, ...]:
    """A topic, as long as nothing is cut off at the start: no pass changes which keys have a value."""
    return ("keys", seen.id, seen.dropped)


def _partition(state: PartitionState) -> tuple[object, ...]:
    """A partition, as long as nothing is removed from it: appends leave as many offsets without record."""
    row = state.row
    missing = row.log_end - sum(s.records for s in state.segments)
    return ("survivors", row.topic_id, row.partition, row.log_start, row.first_dirty, missing)
