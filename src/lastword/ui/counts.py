"""What only a scan of the keys can tell: counted on demand, and known until the log changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lastword.catalog import queries
from lastword.catalog.topics import store_settings
from lastword.cleaner.overview import TopicOverview
from lastword.config import LONG_MAX
from lastword.errors import BrokenFileError
from lastword.files.reader import FileReader
from lastword.foundation import Foundation
from lastword.log.alive import Which, alive
from lastword.log.latest import Stretch, moment_of
from lastword.model import LogFile, PartitionRow, TopicRow
from lastword.passes import PartitionState
from lastword.topic import Topic
from lastword.ui.scans import Scans

_MOST_KNOWN = 1_000


@dataclass(frozen=True)
class Survivors:
    """The records of a partition that are the last of their key, by the base of their segment."""

    partition: int
    segments: Mapping[int, int]


class Counts:
    """Safe to use from several threads."""

    def __init__(self, base: Foundation, scans: Scans) -> None:
        self._base, self._scans, self._lock = base, scans, threading.Lock()
        self._known: OrderedDict[tuple[object, ...], object] = OrderedDict()

    def keys(self, topic: Topic, seen: TopicOverview) -> int:
        """How many keys of a topic have a value."""
        with self._scans.one():
            if (known := self.known_keys(seen)) is not None:
                return known
            count: int = sum(b.num_rows for b in topic.latest(columns=["offset"]).batches())
            self._know(_moment(seen), count)
            return count

    def known_keys(self, seen: TopicOverview) -> int | None:
        """The same, if it was counted since the log last changed."""
        found = self._known.get(_moment(seen))
        return found if isinstance(found, int) else None

    def survivors(self, topic: TopicRow, number: int) -> Survivors:
        """What would be left of each segment of a partition if all of it were cleaned."""
        with self._scans.one():
            while True:
                (stretch,) = moment_of(self._base, topic, [number]).stretches
                place = _place(stretch.row, sum(f.facts.records for f in stretch.files))
                if isinstance(known := self._known.get(place), Survivors):
                    return known
                try:
                    found = Survivors(number, self._count(stretch))
                except BrokenFileError as error:
                    if queries.is_live(self._base.catalog, error.name):
                        raise
                    continue  # a pass has replaced it, and its bytes are gone
                self._know(place, found)
                return found

    def _count(self, stretch: Stretch) -> dict[int, int]:
        map_bytes = store_settings(self._base.catalog).log_cleaner_dedupe_buffer_size
        paths = {f.facts.path for f in stretch.files}
        living = alive(stretch.section, self._base.root, map_bytes, paths, Which.BOTH)
        segments: dict[int, int] = {}
        for file in stretch.files:
            its = living.get(file.facts.path)
            if file.base_offset < stretch.start:  # some of it lies below log start
                can_be_read = self._offsets(file) >= stretch.start
                its = can_be_read if its is None else its & can_be_read
            count = file.facts.records if its is None else int(np.count_nonzero(its))
            segments[file.segment_base] = segments.get(file.segment_base, 0) + count
        return segments

    def _offsets(self, file: LogFile) -> NDArray[np.int64]:
        reader = FileReader(self._base.root, file)
        row_groups = reader.row_groups(0, LONG_MAX)
        return np.concatenate([reader.read(i, [])["offset"].to_numpy() for i in row_groups])

    def known_survivors(self, state: PartitionState) -> Survivors | None:
        """The same, if it was counted since the partition last changed."""
        found = self._known.get(_place(state.row, sum(s.records for s in state.segments)))
        return found if isinstance(found, Survivors) else None

    def _know(self, what: tuple[object, ...], found: object) -> None:
        with self._lock:
            self._known[what] = found
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)


def _moment(seen: TopicOverview) -> tuple[object, ...]:
    """A topic, as long as nothing has happened to its log."""
    return ("keys", seen.id, seen.appended, seen.dropped, seen.records)


def _place(row: PartitionRow, records: int) -> tuple[object, ...]:
    """A partition, as long as nothing has happened to it that matters here."""
    at = (row.log_start, row.log_end, row.first_dirty, row.active_base, records)
    return ("survivors", row.topic_id, row.partition, *at)
