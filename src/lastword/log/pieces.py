"""Pieces: what a task reads of a partition, without the catalog.

A piece is a run of rows of one file. What is sure not to hold a wanted record is not read: row groups
by their bounds of offset and time, values by first looking at the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lastword.config import LONG_MAX
from lastword.files.parquet import FileReader
from lastword.files.root import DataRoot
from lastword.log.scan import Bools
from lastword.model import LogFile

_BATCH_BYTES = 1 << 20  # small batches travel fastest between processes
_FEWEST_ROWS, _MOST_ROWS = 64, 8_192


@dataclass(frozen=True)
class Piece:
    """Rows [first, stop) of a file, as far as they have offsets in [start, end)."""

    file: LogFile
    first: int
    stop: int
    start: int
    end: int

    @property
    def records(self) -> int:
        """How many there are at the most."""
        return self.stop - self.first

    @property
    def bytes(self) -> int:
        """About what they take of the file."""
        return self.file.facts.bytes * self.records // max(1, self.file.facts.records)

    @property
    def is_cut(self) -> bool:
        """Whether some of its rows may lie outside its offsets."""
        return self.start > self.file.base_offset or self.end <= self.file.last_offset


@dataclass(frozen=True)
class Wanted:
    """Which records are asked for. What is read may hold others too, but for other keys."""

    first_ms: int = -LONG_MAX
    last_ms: int = LONG_MAX
    keys: frozenset[bytes] | None = None


def read(
    root: DataRoot,
    piece: Piece,
    columns: Sequence[str],
    wanted: Wanted | None = None,
    keep: Bools | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of a piece, `offset_delta` and these columns, in batches of about a megabyte.

    `keep` says which of the file's rows are read.
    """
    return _gathered(_chosen_batches(root, piece, columns, wanted or Wanted(), keep))


def _chosen_batches(
    root: DataRoot, piece: Piece, columns: Sequence[str], wanted: Wanted, keep: Bools | None
) -> Iterator[pa.RecordBatch]:
    """The records of a piece, in batches that may be tiny."""
    reader = FileReader(root, piece.file)
    stop = 0
    for row_group in reader.row_groups(0, LONG_MAX):
        first, stop = stop, stop + reader.rows(row_group)
        if first >= piece.stop:
            return
        if not _may_hold(reader, row_group, piece, wanted):
            continue
        chosen = _chosen(reader, row_group, piece, first)
        if keep is not None:
            chosen &= keep[first:stop]
        if wanted.keys is not None and chosen.any():
            keys = reader.read(row_group, ["key"])["key"]
            asked = pa.array(sorted(wanted.keys), pa.binary())
            chosen &= pc.is_in(keys, value_set=asked).to_numpy()
        if chosen.any():
            yield from _batches(reader, row_group, columns, chosen)


def _may_hold(reader: FileReader, row_group: int, piece: Piece, wanted: Wanted) -> bool:
    """Whether the row group's bounds allow a wanted record in it."""
    if piece.is_cut and row_group not in reader.row_groups(piece.start, piece.end):
        return False
    oldest, youngest = reader.times(row_group)
    return oldest <= wanted.last_ms and youngest >= wanted.first_ms


def _chosen(reader: FileReader, row_group: int, piece: Piece, first: int) -> Bools:
    """Which rows of the row group, whose first row has this number in the file, are the piece's."""
    rows = np.arange(first, first + reader.rows(row_group))
    chosen: Bools = (rows >= piece.first) & (rows < piece.stop)
    if piece.is_cut:
        offsets = reader.read(row_group, [])["offset"].to_numpy()
        chosen &= (offsets >= piece.start) & (offsets < piece.end)
    return chosen


def _batches(
    reader: FileReader, row_group: int, columns: Sequence[str], chosen: Bools
) -> Iterator[pa.RecordBatch]:
    size = reader.stored_bytes(row_group, columns, uncompressed=True)
    rows = max(_FEWEST_ROWS, min(_MOST_ROWS, _BATCH_BYTES * len(chosen) // max(1, size)))
    row = 0
    for batch in reader.batches(row_group, columns, rows):
        mine = chosen[row : row + batch.num_rows]
        row += batch.num_rows
        if mine.all():
            yield batch
        elif mine.any():
            yield batch.filter(pa.array(mine))


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are worth sending."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if size >= _BATCH_BYTES // 2 or rows >= _MOST_ROWS // 2:
            yield pa.concat_batches(waiting) if len(waiting) > 1 else batch
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)
