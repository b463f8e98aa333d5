"""Latest views that visitors look through: scanned for the first page, and kept for those after it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice

from lastword.errors import ConflictError
from lastword.foundation import Foundation
from lastword.log.latest import Latest, Moment, moment_of
from lastword.model import Record, TopicRow
from lastword.ui.scans import Scans

_MOST_RECORDS = 100_000_000  # of all that are kept; each takes a byte


@dataclass(frozen=True)
class _View:
    """A partition as it was at a moment, scanned."""

    moment: Moment
    latest: Latest

    def shows(self, now: Moment) -> bool:
        """Whether the log is still the same."""
        return [(s.files, s.start, s.row.log_end) for s in self.moment.stretches] == [
            (s.files, s.start, s.row.log_end) for s in now.stretches
        ]


class LatestViews:
    """Safe to use from several threads."""

    def __init__(self, base: Foundation, scans: Scans) -> None:
        self._base, self._scans, self._lock = base, scans, threading.Lock()
        self._known: OrderedDict[tuple[int, int], _View] = OrderedDict()

    def page(
        self, topic: TopicRow, number: int, start: int, size: int, end: int | None
    ) -> tuple[list[Record], int]:
        """Last records that are in a partition, from an offset on; and log end, as of which they are.

        As the log is now; or as it was when its end was there, if that is known still.
        """
        known = self._known.get((topic.id, number))
        if known is not None and known.latest.end[number] == end:
            try:
                return _page(known, number, start, size)
            except ConflictError:  # its files have gone
                pass
        return _page(self._as_it_is(topic, number, known), number, start, size)

    def _as_it_is(self, topic: TopicRow, number: int, known: _View | None) -> _View:
        # Of keys in several partitions, what counts is decided among all of these.
        numbers = None if topic.is_scattered else [number]
        with self._scans.one() as go_on:
            now = moment_of(self._base, topic, numbers)
            if known is not None and known.shows(now):
                return known
            made = _View(now, Latest(self._base, now, progress=go_on).scanned())
        with self._lock:
            self._known[(topic.id, number)] = made
            self._known.move_to_end((topic.id, number))
            while sum(v.moment.records for v in self._known.values()) > _MOST_RECORDS:
                self._known.popitem(last=False)
        return made


def _page(view: _View, number: int, start: int, size: int) -> tuple[list[Record], int]:
    found = view.latest.records_from(number, start)
    return list(islice(found, size)), view.latest.end[number]
