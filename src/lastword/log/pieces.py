"""Pieces: what a task reads of a partition, without the catalog.

A piece is a run of rows of one file. Row groups without a row that is asked for are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lastword.config import LONG_MAX
from lastword.files.reader import FileReader
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


def read(
    root: DataRoot, piece: Piece, columns: Sequence[str], keep: Bools | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of a piece, `offset_delta` and these columns, in batches of about a megabyte.

    `keep` says which of the file's rows are read.
    """
    return _gathered(_chosen_batches(root, piece, columns, keep))


def _chosen_batches(
    root: DataRoot, piece: Piece, columns: Sequence[str], keep: Bools | None
) -> Iterator[pa.RecordBatch]:
    """The records of a piece, in batches that may be tiny."""
    reader = FileReader(root, piece.file)
    wanted = set(reader.row_groups(piece.start, piece.end))
    stop = 0
    for row_group in reader.row_groups(0, LONG_MAX):
        first, stop = stop, stop + reader.rows(row_group)
        if row_group not in wanted or stop <= piece.first or first >= piece.stop:
            continue
        chosen = _chosen(reader, row_group, piece, first)
        if keep is not None:
            chosen &= keep[first:stop]
        if chosen.any():
            yield from chosen_batches(reader, row_group, columns, chosen)


def _chosen(reader: FileReader, row_group: int, piece: Piece, first: int) -> Bools:
    """Which rows of the row group, whose first row has this number in the file, are the piece's."""
    rows = np.arange(first, first + reader.rows(row_group))
    chosen: Bools = (rows >= piece.first) & (rows < piece.stop)
    if piece.is_cut:
        offsets = reader.read(row_group, [])["offset"].to_numpy()
        chosen &= (offsets >= piece.start) & (offsets < piece.end)
    return chosen


def chosen_batches(
    reader: FileReader, row_group: int, columns: Sequence[str], chosen: Bools
) -> Iterator[pa.RecordBatch]:
    """The chosen rows of a row group, `offset_delta` and these columns; batches may be tiny."""
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
