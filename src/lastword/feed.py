"""A feed: one partition as a consumer reads it, and how far a position is behind."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import pyarrow as pa

from lastword.catalog import queries
from lastword.config import LONG_MAX
from lastword.errors import BrokenFileError
from lastword.foundation import Foundation
from lastword.log.backlog import Backlog
from lastword.log.read import Reader, Span
from lastword.log.records import to_records
from lastword.model import Record, TopicRow
from lastword.sharing import Place

_STRETCH = 100_000  # offsets of one partition in a row, before it is another's turn


@dataclass(frozen=True)
class Lag:
    """How far a partition is behind: in offsets, and in records that are still there."""

    topic: str
    partition: int
    position: int
    log_end: int
    records: int

    @property
    def offsets(self) -> int:
        return self.log_end - self.position


class Feed:
    """One partition, from a position on. Only a stretch of it is open at a time."""

    def __init__(self, base: Foundation, topic: TopicRow, place: Place, position: int) -> None:
        self._base, self.topic, self.place = base, topic, place
        self.position = self.committed = position
        self._batches: Generator[pa.RecordBatch] | None = None
        self._left: pa.RecordBatch | None = None
        self._end = position

    @property
    def where(self) -> tuple[str, int]:
        return self.topic.name, self.place[1]

    @property
    def is_open(self) -> bool:
        return self._batches is not None

    def open(self, log_end: int) -> None:
        """Have the next stretch to read, if there is one."""
        if self.position < log_end:
            self._end = min(log_end, self.position + _STRETCH)
            span = Span(self.place[1], self.position, self._end)
            reader = Reader(self._base.catalog, self._base.root, self.topic, [span])
            self._batches = reader.batches()

    def take(self, most: int) -> list[Record]:
        """The next records of the stretch; when it ends, all of it has been read."""
        found: list[Record] = []
        while self._batches is not None and len(found) < most:
            if not self._left:
                try:
                    self._left = next(self._batches, None)
                except BaseException:
                    self.go_to(self.position)  # where it is read again
                    if found:
                        return found
                    raise
                if self._left is None:
                    self.go_to(self._end)
                    break
            rows = self._left.slice(0, most - len(found))
            self._left = self._left.slice(rows.num_rows)
            found += [record._replace(topic=self.topic.name) for record in to_records(rows)]
            self.position = (found[-1].offset or 0) + 1
        return found

    def go_to(self, offset: int) -> None:
        self.close()
        self.position = offset

    def close(self) -> None:
        if self._batches is not None:
            self._batches.close()
        self._batches = self._left = None


def lag_of(base: Foundation, topic: TopicRow, number: int, position: int) -> Lag:
    """How far a position is behind the log's end."""
    while True:
        row, files = queries.read_plan(base.catalog, topic, number, (position, LONG_MAX))
        start = max(position, row.log_start)
        backlog = Backlog((topic.name, number), start, row.log_end, files, base.root)
        try:
            return Lag(topic.name, number, position, row.log_end, backlog.records)
        except BrokenFileError as error:
            if queries.is_live(base.catalog, error.name):
                raise
