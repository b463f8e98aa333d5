"""Mark: which records of the covered files are dead, reading keys only.

Files are read newest first, in batches about as large as the map. In the dirty section, a record
whose key the map does not know is the last of its key: it lives, and goes into the map. Any other
is obsolete. In the clean section, records are only looked up. Runs in a task per partition and
shard; where one map is not enough, it is split, and the files are read again for what it let go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lastword.cleaner.offset_map import OffsetMap, Shard, entry_bytes
from lastword.cleaner.throttle import Throttle
from lastword.config import LONG_MAX
from lastword.errors import BooksError
from lastword.files.parquet import FileReader
from lastword.files.root import DataRoot
from lastword.model import LogFile
from lastword.passes import NULL_KEY, OBSOLETE, REASONS, TOMBSTONE, Horizon

_COLUMNS = ("tombstone", "key")
_BATCH_ROWS = 1 << 19

Bools = NDArray[np.bool_]
Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Covered:
    """What a pass covers of one partition, and which of its tombstones may go."""

    where: str
    files: tuple[LogFile, ...]  # in offset order
    dirty_from: int
    horizons: tuple[Horizon, ...]
    new_horizon: Horizon  # of what this pass covers first; its id is 0
    now_ms: int
    held_from: int | None = None

    @property
    def is_dirty(self) -> bool:
        return any(f.last_offset >= self.dirty_from for f in self.files)


@dataclass(frozen=True)
class MarkTask:
    """The work of one task: a partition, or a shard of its keys."""

    covered: Covered
    root: DataRoot
    shard: Shard
    map_bytes: int
    bytes_per_second: float

    @property
    def weight(self) -> int:
        return sum(f.facts.records for f in self.covered.files)


@dataclass(frozen=True)
class FileMarks:
    """The dead records of one file."""

    records: int  # that were read
    packed: NDArray[np.uint8]  # a bit a record: is it dead?
    removed: dict[str, int]
    dirty: int = 0  # records with a key in the dirty section
    dirty_dead: int = 0
    offset_sum: int = 0  # of all records
    dead_offset_sum: int = 0
    first_tombstones: dict[int, int] = field(default_factory=dict)  # pass id → lowest one left

    @property
    def dead(self) -> Bools:
        return np.unpackbits(self.packed, count=self.records).view(np.bool_)

    @property
    def left(self) -> int:
        return self.records - sum(self.removed.values())

    def and_those(self, others: FileMarks) -> FileMarks:
        """Together with what another shard found: a record is only ever decided by its own."""
        firsts = dict(self.first_tombstones)
        for pass_id, offset in others.first_tombstones.items():
            firsts[pass_id] = min(offset, firsts.get(pass_id, LONG_MAX))
        return replace(
            self,
            packed=self.packed | others.packed,
            removed={r: self.removed[r] + others.removed[r] for r in REASONS},
            dirty_dead=self.dirty_dead + others.dirty_dead,
            dead_offset_sum=self.dead_offset_sum + others.dead_offset_sum,
            first_tombstones=firsts,
        )


@dataclass(frozen=True)
class Marks:
    """What mark found in a partition, by path; files that need not be read are not in it."""

    files: dict[str, FileMarks]
    keys: int = 0
    map_fill: float = 0.0
    shards: int = 0
    bytes_read: int = 0

    def and_those(self, others: Marks) -> Marks:
        files = {path: marks.and_those(others.files[path]) for path, marks in self.files.items()}
        return Marks(
            files,
            self.keys + others.keys,
            max(self.map_fill, others.map_fill),
            self.shards + others.shards,
            self.bytes_read + others.bytes_read,
        )


@dataclass(frozen=True)
class Verdicts:
    """What becomes of the rows of one row group. An offset of -1: not superseded, never expires."""

    file: LogFile
    first_row: int
    offsets: Longs
    keys: pa.BinaryArray
    superseded_by: Longs
    is_null_key: Bools
    is_tombstone: Bools
    may_go: Bools  # a tombstone past its horizon, which no group holds back
    is_mine: Bools  # its key is in the shard

    @property
    def reasons(self) -> dict[str, Bools]:
        """The rows that go, by reason; at most one each."""
        obsolete = self.superseded_by >= 0
        return {
            OBSOLETE: obsolete,
            TOMBSTONE: self.may_go & self.is_mine & ~obsolete,
            NULL_KEY: self.is_null_key & self.is_mine,
        }


def mark(task: MarkTask) -> Marks:
    """The dead records of a partition, as far as their keys are in the task's shard."""
    covered, throttle = task.covered, Throttle(task.bytes_per_second)
    found = {f.facts.path: _Found() for f in _to_read(covered)}
    pending, marks = [task.shard], Marks({})
    while pending:
        scan = Scan(task, pending.pop(), throttle)
        for verdicts in scan:
            found[verdicts.file.facts.path].add(verdicts, covered)
        pending += scan.let_go
        marks = replace(
            marks,
            keys=marks.keys + len(scan.offset_map),
            map_fill=max(marks.map_fill, scan.map_fill),
            shards=marks.shards + 1,
        )
    files = {path: f.marks() for path, f in found.items()}
    return replace(marks, files=files, bytes_read=throttle.bytes)


class Scan:
    """One reading of the files, newest first, for the keys of one shard: its verdicts."""

    def __init__(self, task: MarkTask, shard: Shard, throttle: Throttle) -> None:
        self._task, self._covered, self._throttle = task, task.covered, throttle
        self.shard = shard
        self.offset_map = OffsetMap(task.map_bytes)
        self.map_fill = 0.0
        self.let_go: list[Shard] = []

    def __iter__(self) -> Iterator[Verdicts]:
        for batch in self._batches():
            keys = pa.concat_arrays([g.keys for g in batch])
            offsets = np.concatenate([g.offsets for g in batch])
            superseded_by = self._superseded_by(keys, offsets)
            start = 0
            for group in batch:
                stop = start + len(group.offsets)
                yield self._verdicts(group, superseded_by[start:stop])
                start = stop
            self.shard, let_go = self.offset_map.split(self.shard)
            self.let_go += let_go

    def _superseded_by(self, keys: pa.BinaryArray, offsets: Longs) -> Longs:
        """The last offset of each row's key, where that is a later one; else -1."""
        first_dirty_row = int(np.searchsorted(offsets, self._covered.dirty_from))
        dirty = self._dirty(keys[first_dirty_row:], offsets[first_dirty_row:])
        clean = self.offset_map.find(keys[:first_dirty_row])
        self.map_fill = max(self.map_fill, self.offset_map.fill)
        return np.concatenate([clean, dirty])

    def _dirty(self, keys: pa.BinaryArray, offsets: Longs) -> Longs:
        if not len(keys):
            return np.empty(0, np.int64)
        encoded = keys.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy()
        distinct = encoded.dictionary
        last = np.full(len(distinct) + 1, -1, np.int64)  # one more: where null keys, -1, point to
        last[codes] = offsets
        last = last[:-1]  # numpy keeps the last assignment to an element: offsets ascend
        known = self.offset_map.find(distinct)
        mine = self.shard.holds(distinct)
        new = (known < 0) & mine
        self.offset_map.put(distinct.filter(pa.array(new)), last[new])
        newest = np.append(np.where(known >= 0, known, np.where(mine, last, -1)), -1)
        superseded_by: Longs = newest[codes]
        superseded_by[superseded_by == offsets] = -1
        return superseded_by

    def _verdicts(self, group: _RowGroup, superseded_by: Longs) -> Verdicts:
        is_null_key = np.asarray(pc.is_null(group.keys))
        may_go = group.tombstones & tombstones_that_may_go(self._covered, group.offsets)
        is_mine = np.full(len(superseded_by), self.shard.index == 0)  # null keys are the first's
        asked = np.flatnonzero(group.tombstones)
        is_mine[asked] = self.shard.holds(group.keys.take(pa.array(asked)))
        return Verdicts(
            group.file,
            group.first_row,
            group.offsets,
            group.keys,
            superseded_by,
            is_null_key,
            group.tombstones,
            may_go,
            is_mine,
        )

    def _batches(self) -> Iterator[list[_RowGroup]]:
        """Row groups in offset order, the newest batch first; in none more than half a map."""
        batch: list[_RowGroup] = []
        rows = size = 0
        for group in self._row_groups():
            is_large = rows >= max(_BATCH_ROWS, len(self.offset_map))
            if batch and (is_large or size + group.entries > self._task.map_bytes // 2):
                yield batch
                batch, rows, size = [], 0, 0
            batch.insert(0, group)
            rows += len(group.offsets)
            size += group.entries
        if batch:
            yield batch

    def _row_groups(self) -> Iterator[_RowGroup]:
        """The row groups of the files, newest first."""
        for file in reversed(_to_read(self._covered)):
            reader = FileReader(self._task.root, file)
            row = file.facts.records
            for i in reversed(reader.row_groups(0, LONG_MAX)):
                table = reader.read(i, _COLUMNS)
                self._throttle.used(reader.stored_bytes(i, _COLUMNS))
                row -= table.num_rows
                group = _RowGroup(
                    file,
                    row,
                    table["offset"].to_numpy(),
                    pa.concat_arrays(table["key"].chunks),
                    table["tombstone"].to_numpy(),
                )
                yield from group.parts(self._task.map_bytes // 2)
            if row != 0:
                raise BooksError(
                    self._covered.where,
                    f"{file.facts.path}: records",
                    file.facts.records - row,
                    file.facts.records,
                )


def tombstones_that_may_go(covered: Covered, offsets: Longs) -> Bools:
    """Which offsets lie where tombstones are past their horizon, and every group has read them."""
    may_go = np.zeros(len(offsets), np.bool_)
    for horizon in reversed(covered.horizons):  # the first pass that covered an offset decides
        first, end = np.searchsorted(offsets, [horizon.start, horizon.end])
        may_go[first:end] = horizon.at_ms <= covered.now_ms
    may_go &= offsets < covered.dirty_from
    if covered.held_from is not None:
        may_go &= offsets < covered.held_from
    return may_go


@dataclass(frozen=True)
class _RowGroup:
    """The keys of a row group, or of a part of it."""

    file: LogFile
    first_row: int
    offsets: Longs
    keys: pa.BinaryArray
    tombstones: Bools

    @property
    def entries(self) -> int:
        """The bytes of its keys in a map, if they are all different."""
        return entry_bytes(len(self.keys), self.keys.nbytes)

    def parts(self, most_bytes: int) -> Iterator[_RowGroup]:
        """Parts that take so much of a map at the most, the newest first."""
        count = len(self.offsets)
        step = -(-count // min(count, -(-self.entries // max(1, most_bytes))))
        for start in reversed(range(0, count, step)):
            rows = slice(start, start + step)
            yield _RowGroup(
                self.file,
                self.first_row + start,
                self.offsets[rows],
                self.keys[rows],
                self.tombstones[rows],
            )


@dataclass
class _Found:
    """The marks of one file, as they are gathered; by first row, what is noted once a row group."""

    packed: dict[int, NDArray[np.uint8]] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    dirty: dict[int, int] = field(default_factory=dict)
    dirty_dead: int = 0
    offset_sums: dict[int, int] = field(default_factory=dict)
    dead_offset_sum: int = 0
    removed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    first_tombstones: dict[int, int] = field(default_factory=dict)

    def add(self, verdicts: Verdicts, covered: Covered) -> None:
        """Note the verdicts of a row group. A row that was found dead before is not counted again."""
        row, count = verdicts.first_row, len(verdicts.offsets)
        known = self._dead(row, count)
        dead = known.copy()
        for reason, goes in verdicts.reasons.items():
            self.removed[reason] += int(np.count_nonzero(goes & ~known))
            dead |= goes
        dirty = (verdicts.offsets >= covered.dirty_from) & ~verdicts.is_null_key
        self.packed[row], self.rows[row] = np.packbits(dead), count
        self.dirty[row] = int(np.count_nonzero(dirty))
        self.dirty_dead += int(np.count_nonzero(dirty & dead & ~known))
        self.offset_sums[row] = int(verdicts.offsets.sum())
        self.dead_offset_sum += int(verdicts.offsets[dead & ~known].sum())
        left = verdicts.offsets[verdicts.is_tombstone & verdicts.is_mine & ~dead]
        for horizon in (*covered.horizons, covered.new_horizon):
            first = int(np.searchsorted(left, horizon.start))
            if first < len(left) and left[first] < horizon.end:
                lowest = min(int(left[first]), self.first_tombstones.get(horizon.pass_id, LONG_MAX))
                self.first_tombstones[horizon.pass_id] = lowest

    def marks(self) -> FileMarks:
        dead = np.concatenate([self._dead(row, self.rows[row]) for row in sorted(self.rows)])
        return FileMarks(
            len(dead),
            np.packbits(dead),
            self.removed,
            sum(self.dirty.values()),
            self.dirty_dead,
            sum(self.offset_sums.values()),
            self.dead_offset_sum,
            self.first_tombstones,
        )

    def _dead(self, row: int, count: int) -> Bools:
        if row not in self.packed:
            return np.zeros(count, np.bool_)
        return np.unpackbits(self.packed[row], count=count).view(np.bool_)


def _to_read(covered: Covered) -> Sequence[LogFile]:
    """All files if there is something dirty, else those with tombstones."""
    if covered.is_dirty:
        return covered.files
    return [f for f in covered.files if f.facts.tombstones]
