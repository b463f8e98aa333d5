"""Look a key up: newest file first, in the partition that its hash names, by the files' key indexes.

Files are immutable and their names are never used again, so what is known of one stays true: a
lookup keeps what it knows of files. It also keeps the list of a partition's files. As long as
only appends have happened, the list is right and new files come on top of it; a pass moves
`first_dirty` or `exact_from`, retention `log_start`, and then the list is asked for anew. (A pass that only
drops tombstones below others that went before moves neither: such a tombstone may still be found.)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from threading import RLock
from typing import TypeVar

import pyarrow as pa

from lastword.catalog import cleaning, queries
from lastword.config import LONG_MAX
from lastword.errors import BrokenFileError
from lastword.files.key_index import hash_of
from lastword.files.reader import FileReader
from lastword.foundation import Foundation
from lastword.log.records import to_records
from lastword.log.scattered import rank
from lastword.model import LogFile, PartitionRow, Record, TopicRow
from lastword.partitioner import partition_for
from lastword.passes import Pass

_COLUMNS = ("timestamp", "key", "value", "headers")
_KNOWN_FILES = 1_000  # of which what is known is kept; none is kept open

Found = TypeVar("Found")


@dataclass(frozen=True)
class History:
    """The versions of a key that are still there, newest first: iterable.

    A key that is in several partitions: those of the partition that counts come first.
    `removed_by` is the pass that covered the oldest of them first: if anything came before it, it was
    removed then, or earlier. None if no pass has covered it yet, or a limit has cut off older ones.
    """

    key: bytes
    versions: tuple[Record, ...]
    removed_by: Pass | None

    def __iter__(self) -> Iterator[Record]:
        return iter(self.versions)

    def __len__(self) -> int:
        return len(self.versions)

    def __getitem__(self, index: int) -> Record:
        return self.versions[index]


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
        return max(self.lasts(key), key=rank, default=None)

    def lasts(self, key: bytes) -> list[Record]:
        """The last record of a key in every partition that has one."""

        def find() -> list[Record]:
            lasts = (next(self._versions(log, key), None) for log in self._logs_of(key))
            return [record for _, record in filter(None, lasts)]

        return self._persistently(find)

    def history(self, key: bytes, limit: int | None = None) -> History:
        """The versions of a key that are still there; the newest ones, if there is a limit."""

        def find() -> list[list[Record]]:
            logs = self._logs_of(key)
            return [[r for _, r in islice(self._versions(log, key), limit)] for log in logs]

        with self._lock:
            self._logs.clear()  # an old list has what a pass has removed since
            runs = filter(None, self._persistently(find))
        newest_first = sorted(runs, key=lambda run: rank(run[0]), reverse=True)
        versions = tuple(record for run in newest_first for record in run)[:limit]
        if not versions or len(versions) == limit:
            return History(key, versions, None)
        at = (versions[-1].partition or 0, versions[-1].offset or 0)
        removed_by = cleaning.first_pass_over(self._base.catalog, self._topic.id, *at)
        return History(key, versions, removed_by)

    def holding(self, key: bytes) -> list[tuple[LogFile, Record]]:
        """All versions of a key with the files that hold them, newest first in each partition.

        Also those below log start, which nobody can read.
        """

        def find() -> list[tuple[LogFile, Record]]:
            logs = self._logs_of(key)
            return [found for log in logs for found in self._versions(log, key, from_offset=0)]

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

    def _versions(
        self, log: _Log, key: bytes, from_offset: int | None = None
    ) -> Iterator[tuple[LogFile, Record]]:
        """The records of a key in a partition, newest first, with their files."""
        key_hash = hash_of(key)
        first = log.row.log_start if from_offset is None else from_offset
        for file in log.files:
            with self._read(file) as reader:
                rows, portion = reader.rows_with(key_hash), 1
                while rows:  # few at first: often only the last one is asked for
                    for record in _newest_first(reader.take(rows[-portion:], _COLUMNS)):
                        if record.key == key and (record.offset or 0) >= first:
                            yield file, record._replace(partition=log.row.partition)
                    rows, portion = rows[:-portion], 8 * portion

    @contextmanager
    def _read(self, file: LogFile) -> Iterator[FileReader]:
        """The file, open as long as it is read."""
        path = file.facts.path
        reader = self._readers.pop(path, None) or FileReader(self._base.root, file)
        self._readers[path] = reader  # the one used last stands last
        if len(self._readers) > _KNOWN_FILES:
            self._readers.popitem(last=False)
        try:
            yield reader
        finally:
            reader.rest()

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


def _newest_first(table: pa.Table) -> Iterator[Record]:
    for batch in reversed(table.to_batches()):
        yield from reversed(list(to_records(batch)))
