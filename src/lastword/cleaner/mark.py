"""Mark: which records of the covered files are dead, reading keys only.

Runs in a task per partition, or shard of its keys. What one scan finds, or several where one map
is not enough, becomes a bitmap for every file, and the counts that the books need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lastword.cleaner.covered import Covered
from lastword.cleaner.throttle import Throttle
from lastword.config import LONG_MAX
from lastword.files.root import DataRoot
from lastword.log.offset_map import Shard
from lastword.log.scan import Bools, Scan, Scanned
from lastword.passes import BELOW_LOG_START, REASONS, TOMBSTONE

_ALL_REASONS = (*REASONS, BELOW_LOG_START)


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
    last_gone: int = -1  # the highest tombstone past its horizon

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
            removed={r: self.removed[r] + others.removed[r] for r in _ALL_REASONS},
            dirty_dead=self.dirty_dead + others.dirty_dead,
            dead_offset_sum=self.dead_offset_sum + others.dead_offset_sum,
            first_tombstones=firsts,
            last_gone=max(self.last_gone, others.last_gone),
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


def mark(task: MarkTask, on_read: Callable[[int], None] = lambda _bytes: None) -> Marks:
    """The dead records of a partition, as far as their keys are in the task's shard."""
    covered, throttle = task.covered, Throttle(task.bytes_per_second)

    def read(count: int) -> None:
        throttle.used(count)
        on_read(count)

    found = {f.facts.path: _Found() for f in covered.to_read}
    pending, marks = [task.shard], Marks({})
    while pending:
        scan = Scan(covered, task.root, pending.pop(), task.map_bytes, read)
        for rows in scan:
            found[rows.file.facts.path].add(rows, covered)
        pending += scan.let_go
        marks = replace(
            marks,
            keys=marks.keys + len(scan.offset_map),
            map_fill=max(marks.map_fill, scan.map_fill),
            shards=marks.shards + 1,
        )
    files = {path: f.marks() for path, f in found.items()}
    return replace(marks, files=files, bytes_read=throttle.bytes)


@dataclass
class _Found:
    """The marks of one file, as they are gathered; by first row, what is noted once a row group."""

    packed: dict[int, NDArray[np.uint8]] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    dirty: dict[int, int] = field(default_factory=dict)
    dirty_dead: int = 0
    offset_sums: dict[int, int] = field(default_factory=dict)
    dead_offset_sum: int = 0
    removed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_ALL_REASONS, 0))
    first_tombstones: dict[int, int] = field(default_factory=dict)
    last_gone: int = -1

    def add(self, scanned: Scanned, covered: Covered) -> None:
        """Note what becomes of a row group. A row that was found dead before is not counted again."""
        row, count = scanned.first_row, len(scanned.offsets)
        known = self._dead(row, count)
        dead = known.copy()
        reasons = covered.reasons(scanned)
        for reason, goes in reasons.items():
            self.removed[reason] += int(np.count_nonzero(goes & ~known))
            dead |= goes
        gone = scanned.offsets[reasons[TOMBSTONE]]
        self.last_gone = max(self.last_gone, int(gone[-1]) if gone.size else -1)
        is_dirty = (scanned.offsets >= covered.dirty_from) & (scanned.offsets < covered.end)
        dirty = is_dirty & ~scanned.is_null_key
        self.packed[row], self.rows[row] = np.packbits(dead), count
        self.dirty[row] = int(np.count_nonzero(dirty))
        self.dirty_dead += int(np.count_nonzero(dirty & dead & ~known))
        self.offset_sums[row] = int(scanned.offsets.sum())
        self.dead_offset_sum += int(scanned.offsets[dead & ~known].sum())
        left = scanned.offsets[scanned.is_tombstone & scanned.is_mine & ~dead]
        for horizon in covered.horizons_of(scanned.offsets):
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
            self.last_gone,
        )

    def _dead(self, row: int, count: int) -> Bools:
        if row not in self.packed:
            return np.zeros(count, np.bool_)
        return np.unpackbits(self.packed[row], count=count).view(np.bool_)
