"""Scan: read the keys of some files of a partition, newest first, and find what is obsolete.

In the dirty section, a record whose key the map does not know is the last of its key: it goes into the
map. Any other is obsolete. In the clean section, where no key comes twice, records are only looked up.
Records come in batches about as large as the map; a map that is full is split, and whoever scans
comes back for the keys that it let go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lastword.config import LONG_MAX
from lastword.errors import BooksError
from lastword.files.reader import FileReader
from lastword.files.root import DataRoot
from lastword.log.offset_map import OffsetMap, Shard, entry_bytes
from lastword.model import LogFile

KEY_COLUMNS = ("tombstone", "key")
_BATCH_ROWS = 1 << 19
_BATCH_BYTES = 1 << 29  # well below what a binary array can hold

Bools = NDArray[np.bool_]
Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Section:
    """What is scanned of one partition."""

    where: str
    files: tuple[LogFile, ...]  # in offset order; what they hold from `end` on is not scanned
    log_start: int
    dirty_from: int
    end: int

    @property
    def is_dirty(self) -> bool:
        is_new = self.dirty_from < self.end
        return is_new and any(f.last_offset >= self.dirty_from for f in self.files)

    @property
    def to_read(self) -> Sequence[LogFile]:
        """All files if there is something dirty, else those with tombstones."""
        if self.is_dirty:
            return self.files
        return [f for f in self.files if f.facts.tombstones]


@dataclass(frozen=True)
class Scanned:
    """The rows of one row group. `superseded_by` is -1 where a record is the last of its key."""

    file: LogFile
    first_row: int
    offsets: Longs
    keys: pa.BinaryArray
    superseded_by: Longs
    is_null_key: Bools
    is_unreadable: Bools  # below log start
    is_tombstone: Bools
    is_mine: Bools  # its key is in the shard


class Scan:
    """One reading of the files, newest first, for the keys of one shard."""

    def __init__(
        self,
        section: Section,
        root: DataRoot,
        shard: Shard,
        map_bytes: int,
        on_read: Callable[[int], None] = lambda _bytes: None,
    ) -> None:
        self._section, self._root, self._map_bytes = section, root, map_bytes
        self._on_read, self.shard = on_read, shard
        self.offset_map = OffsetMap(map_bytes)
        self.map_fill = 0.0
        self.let_go: list[Shard] = []

    def __iter__(self) -> Iterator[Scanned]:
        for batch in self._batches():
            keys = pa.concat_arrays([g.keys for g in batch])
            offsets = np.concatenate([g.offsets for g in batch])
            superseded_by = self._superseded_by(keys, offsets)
            start = 0
            for group in batch:
                stop = start + len(group.offsets)
                yield self._scanned(group, superseded_by[start:stop])
                start = stop
            self.shard, let_go = self.offset_map.split(self.shard)
            self.let_go += let_go

    def _superseded_by(self, keys: pa.BinaryArray, offsets: Longs) -> Longs:
        """The last offset of each row's key, where that is a later one; else -1."""
        bounds = (self._section.dirty_from, self._section.end)
        first, stop = (int(i) for i in np.searchsorted(offsets, bounds))
        dirty = self._dirty(keys[first:stop], offsets[first:stop])
        clean = self.offset_map.find(keys[:first])
        self.map_fill = max(self.map_fill, self.offset_map.fill)
        return np.concatenate([clean, dirty, np.full(len(offsets) - stop, -1)])

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

    def _scanned(self, group: _RowGroup, superseded_by: Longs) -> Scanned:
        is_covered = group.offsets < self._section.end
        is_null_key = np.asarray(pc.is_null(group.keys)) & is_covered
        is_unreadable = group.offsets < self._section.log_start
        is_mine = np.full(len(superseded_by), self.shard.index == 0)  # null keys are the first's
        asked = np.flatnonzero(group.tombstones | (is_unreadable & ~is_null_key))
        is_mine[asked] = self.shard.holds(group.keys.take(pa.array(asked)))
        return Scanned(
            group.file,
            group.first_row,
            group.offsets,
            group.keys,
            superseded_by,
            is_null_key,
            is_unreadable,
            group.tombstones,
            is_mine,
        )

    def _batches(self) -> Iterator[list[_RowGroup]]:
        """Row groups in offset order, the newest batch first; in none more than half a map."""
        batch: list[_RowGroup] = []
        rows = size = 0
        most_bytes = min(self._map_bytes // 2, _BATCH_BYTES)
        for group in self._row_groups():
            is_large = rows >= max(_BATCH_ROWS, len(self.offset_map))
            if batch and (is_large or size + group.entries > most_bytes):
                yield batch
                batch, rows, size = [], 0, 0
            batch.insert(0, group)
            rows += len(group.offsets)
            size += group.entries
        if batch:
            yield batch

    def _row_groups(self) -> Iterator[_RowGroup]:
        """The row groups of the files, newest first."""
        for file in reversed(self._section.to_read):
            reader = FileReader(self._root, file)
            row = file.facts.records
            for i in reversed(reader.row_groups(0, LONG_MAX)):
                table = reader.read(i, KEY_COLUMNS)
                self._on_read(reader.stored_bytes(i, KEY_COLUMNS))
                row -= table.num_rows
                group = _RowGroup(
                    file,
                    row,
                    table["offset"].to_numpy(),
                    pa.concat_arrays(table["key"].chunks),
                    table["tombstone"].to_numpy(),
                )
                yield from group.parts(self._map_bytes // 2)
            if row != 0:
                raise BooksError(
                    self._section.where,
                    f"{file.facts.path}: records",
                    file.facts.records - row,
                    file.facts.records,
                )


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
