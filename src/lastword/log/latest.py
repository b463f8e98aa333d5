"""The last records of a topic at one moment: one for every key, cleaned or not.

In two steps, as the cleaner: keys are scanned to find which records are alive, then these are read.
Partitions are scanned on other threads while the one before is read; memory is bounded by the map of
a scan, a bit more than a byte for each record of the partitions under way, and some row groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Self

import numpy as np
import pyarrow as pa

from lastword.catalog import queries
from lastword.catalog.topics import store_settings
from lastword.config import LONG_MAX
from lastword.errors import BrokenFileError, ConflictError, UnknownTopicError
from lastword.files.reader import FileReader
from lastword.foundation import Foundation
from lastword.log.alive import Which, alive
from lastword.log.pieces import chosen_batches
from lastword.log.read import THREADS, as_shown, known_columns, read_ahead, shown_schema
from lastword.log.records import to_records
from lastword.log.scan import KEY_COLUMNS, Bools, Section
from lastword.log.scattered import Living, winners
from lastword.model import LogFile, PartitionRow, Record, TopicRow

Progress = Callable[[int], None]  # called with the bytes of the log that were dealt with


def _no_progress(_bytes: int) -> None:
    return None


@dataclass(frozen=True)
class Stretch:
    """A partition at one moment, from a position to its log end."""

    row: PartitionRow
    files: tuple[LogFile, ...]
    start: int

    @property
    def section(self) -> Section:
        first_dirty = max(self.row.first_dirty, self.start)
        where = self.files[0].where if self.files else ""
        return Section(where, self.files, self.start, first_dirty, self.row.log_end)

    def since(self, offset: int) -> Stretch:
        """What is left of it from an offset on."""
        files = tuple(f for f in self.files if f.last_offset >= offset)
        return replace(self, files=files, start=max(self.start, offset))


@dataclass(frozen=True)
class _Rows:
    """The chosen rows of a row group, from an offset on."""

    reader: FileReader
    row_group: int
    chosen: Bools
    start: int

    def read(self, columns: Sequence[str]) -> pa.Table:
        batches = list(chosen_batches(self.reader, self.row_group, columns, self.chosen))
        table = self.reader.with_offsets(pa.Table.from_batches(batches).combine_chunks())
        if self.start <= self.reader.file.base_offset:
            return table
        return table.slice(int(np.searchsorted(table["offset"].to_numpy(), self.start)))


@dataclass(frozen=True)
class Moment:
    """A topic at one moment: some of its partitions, from their log start or from positions."""

    topic: TopicRow
    stretches: tuple[Stretch, ...]

    @property
    def records(self) -> int:
        """How many its files hold."""
        return sum(f.facts.records for s in self.stretches for f in s.files)


class LastRecords:
    """The last record of every key, as the topic was at one moment: iterable, or as Arrow.

    In a partition they come in offset order. Files that the cleaner has replaced are kept for
    `file.delete.delay.ms`; if one has gone, ConflictError says to make this anew.
    """

    def __init__(
        self,
        base: Foundation,
        moment: Moment,
        columns: Sequence[str] | None = None,
        which: Which = Which.VALUES,
        progress: Progress | None = None,
    ) -> None:
        self._base, self._moment = base, moment
        self._topic, self._stretches = moment.topic, moment.stretches
        self.columns, self._which = known_columns(columns), which
        self.schema = shown_schema(self.columns)
        self._progress = progress or _no_progress
        self._scanned: list[tuple[Stretch, dict[str, Bools]]] | None = None

    def scanned(self) -> Self:
        """These, with their keys scanned by now: they may be read again and again, and from anywhere.

        That takes memory: a byte for each record of the files that were scanned.
        """
        self._scanned = list(self._living())
        return self

    @property
    def topic(self) -> TopicRow:
        """The topic at that moment."""
        return self._topic

    def only(self, columns: Sequence[str]) -> Self:
        """The same records, with these columns."""
        made = type(self)(self._base, self._moment, columns, self._which, self._progress)
        made._scanned = self._scanned
        return made

    @property
    def end(self) -> dict[int, int]:
        """Log end of every partition at that moment: where to go on reading."""
        return {s.row.partition: s.row.log_end for s in self._stretches}

    @property
    def starts(self) -> dict[int, int]:
        """Log start of every partition at that moment."""
        return {s.row.partition: s.row.log_start for s in self._stretches}

    @property
    def bytes(self) -> int:
        """The size of the files that decide it: what `progress` adds up to, or more if keys had to be
        scanned again."""
        return sum(f.facts.bytes for s in self._stretches for f in s.files)

    def __iter__(self) -> Iterator[Record]:
        for batch in self.batches():
            yield from to_records(batch)

    def to_arrow(self) -> pa.Table:
        """All of it as one table, in memory."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The records as Arrow batches of some megabytes at most."""
        with self._translated():
            for stretch, living in self._scanned or self._living():
                yield from self._batches(stretch, living)

    def records_from(self, partition: int, offset: int) -> Iterator[Record]:
        """Those of one partition, from an offset on."""
        with self._translated():
            for stretch, living in self._scanned or self._living():
                if stretch.row.partition == partition:
                    for batch in self._batches(stretch.since(offset), living):
                        yield from to_records(batch)

    def _batches(self, stretch: Stretch, living: Mapping[str, Bools]) -> Iterator[pa.RecordBatch]:
        for table in read_ahead(self._reads(stretch, living)):
            for batch in table.to_batches():
                yield as_shown(batch, stretch.row.partition, self.schema)

    def _living(self) -> Iterator[tuple[Stretch, dict[str, Bools]]]:
        """The rows of each partition that are asked for; the next ones are scanned meanwhile."""
        map_bytes = store_settings(self._base.catalog).log_cleaner_dedupe_buffer_size // THREADS
        with ThreadPoolExecutor(THREADS) as pool:
            waiting = iter(self._stretches)
            scans = deque(self._scan(pool, s, map_bytes) for s in islice(waiting, THREADS))
            try:
                while scans:
                    stretch, living = scans.popleft()
                    found = living.result()
                    scans += [self._scan(pool, s, map_bytes) for s in islice(waiting, 1)]
                    yield stretch, found
            finally:
                for _, scan in scans:
                    scan.cancel()

    def _scan(
        self, pool: ThreadPoolExecutor, stretch: Stretch, map_bytes: int
    ) -> tuple[Stretch, Future[dict[str, Bools]]]:
        paths = {f.facts.path for f in stretch.files}
        work = partial(alive, stretch.section, self._base.root, map_bytes, paths, self._which)
        return stretch, pool.submit(work, self._progress)

    def _reads(
        self, stretch: Stretch, living: Mapping[str, Bools]
    ) -> Iterator[Callable[[], pa.Table]]:
        """The reads to do, in order: the row groups with records that are alive."""
        stored = [name for name in self.columns if name not in ("partition", "offset")]
        for file in stretch.files:
            its = living.get(file.facts.path)
            if its is None and self._which is Which.TOMBSTONES:
                self._progress(file.facts.bytes)
                continue
            reader, stop = FileReader(self._base.root, file), 0
            row_groups = reader.row_groups(0, LONG_MAX)
            since_start = set(reader.row_groups(stretch.start, LONG_MAX))
            self._progress(file.facts.bytes - sum(map(reader.stored_bytes, row_groups)))
            for row_group in row_groups:
                first, stop = stop, stop + reader.rows(row_group)
                chosen = np.ones(stop - first, np.bool_) if its is None else its[first:stop]
                done = reader.stored_bytes(row_group)
                if its is not None:
                    done -= reader.stored_bytes(row_group, KEY_COLUMNS)
                if row_group in since_start and chosen.any():
                    wanted = _Rows(reader, row_group, chosen, stretch.start)
                    yield partial(self._read, wanted, stored, done)
                else:
                    self._progress(done)

    def _read(self, wanted: _Rows, stored: Sequence[str], done: int) -> pa.Table:
        table = wanted.read(stored)
        self._progress(done)
        return table

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except BrokenFileError as error:
            if queries.is_live(self._base.catalog, error.name):
                raise
            raise ConflictError(
                f"{error.path} was replaced by the cleaner, and its bytes are gone since this view of "
                f"{self._topic.name!r} was made: make it anew"
            ) from None


class Latest(LastRecords):
    """The current value of every key: each once, deleted keys absent."""

    def to_dict(self) -> dict[bytes, bytes]:
        """Keys and values, in memory."""
        found: dict[bytes, bytes] = {}
        for batch in self.only(["key", "value"]).batches():
            found.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        return found

    def keys(self) -> Iterator[bytes]:
        """The keys that have a value; values are not read."""
        for batch in self.only(["key"]).batches():
            yield from batch.column("key").to_pylist()

    def _living(self) -> Iterator[tuple[Stretch, dict[str, Bools]]]:
        """Of a key that is in several partitions, only the record that counts."""
        if not self._topic.is_scattered or len(self._stretches) == 1:
            yield from super()._living()
            return
        both = LastRecords(self._base, self._moment, ["key"], Which.BOTH, self._progress)
        scanned = list(both._living())
        last = [
            Living(file, its.get(file.facts.path, _all_rows(file)), stretch.start)
            for stretch, its in scanned
            for file in stretch.files
        ]
        counting = winners(self._base.root, last)
        for stretch, _ in scanned:
            yield stretch, {f.facts.path: counting[f.facts.path] for f in stretch.files}


def _all_rows(file: LogFile) -> Bools:
    return np.ones(file.facts.records, np.bool_)


def moment_of(
    base: Foundation,
    topic: TopicRow,
    numbers: Sequence[int] | None = None,
    since: Mapping[int, int] | None = None,
) -> Moment:
    """These partitions of a topic, or all, as they are now, from their log start.

    Files that lie wholly before the positions `since` are left out.
    """
    now, logs = queries.log_of(base.catalog, topic, since or {})
    found = {row.partition: Stretch(row, tuple(files), row.log_start) for row, files in logs}
    for number in numbers or ():
        if number not in found:
            raise UnknownTopicError(topic.name, number)
    return Moment(now, tuple(s for n, s in found.items() if numbers is None or n in numbers))
