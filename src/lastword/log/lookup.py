"""Look a key up: newest file first, in the partition that its hash names, by the files' key indexes.

Files are immutable and their names are never used again, so what is known of one stays true: a
lookup keeps the files that it has opened. It also keeps the list of a partition's files. As long as
only appends have happened, the list is right and new files come on top of it; a pass moves
`first_dirty` or `exact_from`, retention `log_start`, and then the list is asked for anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import RLock
from typing import TypeVar

import pyarrow as pa

from lastword.catalog import cleaning, queries
from lastword.config import LONG_MAX
from lastword.errors import BrokenFileError
from lastword.files.key_index import hash_of
from lastword.files.parquet import FileReader
from lastword.foundation import Foundation
from lastword.log.records import to_records
from lastword.model import LogFile, PartitionRow, Record, TopicRow
from lastword.partitioner import partition_for
from lastword.passes import Pass

_COLUMNS = ("timestamp", "key", "value", "headers")
_OPEN_FILES = 256

Found = TypeVar("Found")


@dataclass(frozen=True)
class History:
    """The versions of a key that are still there, newest first: iterable.

    `removed_by` is the pass that removed what came before the oldest of them, if there was anything;
    None if no pass has covered that one yet: then nothing was removed.
    """

    key: bytes
    versions: tuple[Record, ...]
    removed_by: Pass | None

    def __iter__(self) -> Iterator[Record]:
        return iter(self.versions)

    def __len__(self) -> int:
        return len(self.versions)


@dataclass(frozen=True)
class _Log:
    """A partition, and its files, newest first."""

    row: PartitionRow
    files: tuple[LogFile, ...]

    def only_grew_to(self, now: PartitionRow) -> bool:
        """Whether nothing but appends has happened since."""
        was = self.row
        return (was.log_start, was.first_dirty, was.exact_from) == (
            now.log_start,
            now.first_dirty,
            now.exact_from,
        )


class Lookup:
    """Finds keys of one topic. Safe to use from several threads."""

    def __init__(self, base: Foundation, topic: TopicRow) -> None:
        self._base, self._topic = base, topic
        self._logs: dict[int, _Log] = {}
        self._readers: OrderedDict[str, FileReader] = OrderedDict()
        self._lock = RLock()

    def last(self, key: bytes) -> Record | None:
        """The last record of a key, which may be a tombstone."""

        def find() -> Record | None:
            lasts = (next(self._versions(log, key), None) for log in self._logs_of(key))
            return max((record for _, record in filter(None, lasts)), key=_time, default=None)

        return self._persistently(find)

    def history(self, key: bytes) -> History:
        """All versions of a key that are still there."""
        found = [record for _, record in self.holding(key)]
        if len({record.partition for record in found}) > 1:
            found.sort(key=_time, reverse=True)
        if not found:
            return History(key, (), None)
        at = (found[-1].partition or 0, found[-1].offset or 0)
        removed_by = cleaning.first_pass_over(self._base.catalog, self._topic.id, *at)
        return History(key, tuple(found), removed_by)

    def holding(self, key: bytes) -> list[tuple[LogFile, Record]]:
        """All versions of a key with the files that hold them, newest first in each partition."""

        def find() -> list[tuple[LogFile, Record]]:
            self._logs.clear()  # an old list has what a pass has removed since
            return [found for log in self._logs_of(key) for found in self._versions(log, key)]

        return self._persistently(find)

    def partitions_of(self, key: bytes) -> list[int]:
        """The partitions that may hold a key, or have held it."""
        return [log.row.partition for log in self._logs_of(key)]

    def _logs_of(self, key: bytes) -> list[_Log]:
        """The partitions that may hold a key."""
        catalog = self._base.catalog
        is_scattered, rows = queries.bounds(catalog, self._topic.id, self._topic.name)
        if not is_scattered:
            named = partition_for(pa.array([key], pa.binary()), len(rows))[0]
            rows = [rows[named]]
        return [self._log(row) for row in rows]

    def _log(self, now: PartitionRow) -> _Log:
        """The partition with its files; only those that are new are asked for, if that will do."""
        known = self._logs.get(now.partition)
        if known is not None and known.only_grew_to(now):
            if known.row.log_end == now.log_end:
                return known
            row, new = self._listed(now.partition, known.row.log_end)
            if known.only_grew_to(row):
                known = self._logs[now.partition] = _Log(row, (*new, *known.files))
                return known
        self._logs[now.partition] = _Log(*self._listed(now.partition, 0))
        return self._logs[now.partition]

    def _listed(self, number: int, start: int) -> tuple[PartitionRow, tuple[LogFile, ...]]:
        wanted = (start, LONG_MAX)
        row, files = queries.read_plan(self._base.catalog, self._topic, number, wanted)
        return row, tuple(reversed(files))

    def _versions(self, log: _Log, key: bytes) -> Iterator[tuple[LogFile, Record]]:
        """The records of a key in a partition, newest first, with their files."""
        key_hash = hash_of(key)
        for file in log.files:
            reader = self._reader(file)
            rows = reader.rows_with(key_hash)
            if not rows:
                continue
            table = reader.take(rows, _COLUMNS)
            for record in reversed(list(to_records(table.combine_chunks().to_batches()[0]))):
                if record.key == key and (record.offset or 0) >= log.row.log_start:
                    yield file, record._replace(partition=log.row.partition)

    def _reader(self, file: LogFile) -> FileReader:
        path = file.facts.path
        reader = self._readers.pop(path, None) or FileReader(self._base.root, file)
        self._readers[path] = reader  # the one used last stands last
        if len(self._readers) > _OPEN_FILES:
            self._readers.popitem(last=False)
        return reader

    def _persistently(self, find: Callable[[], Found]) -> Found:
        """Look; once more if a file has gone because the cleaner has replaced it."""
        with self._lock:
            while True:
                try:
                    return find()
                except BrokenFileError as error:
                    self._readers.pop(error.name, None)
                    self._logs.clear()
                    if queries.is_live(self._base.catalog, error.name):
                        raise


def _time(record: Record) -> int:
    """By which the records of several partitions are compared."""
    return record.timestamp  # type: ignore[return-value]
