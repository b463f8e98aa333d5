"""Split: the pieces of a read, shared among tasks; pure.

By live records and bytes, which the catalog knows, not by the distance of offsets: a cleaned log has
many offsets and few records. A task reads of one partition only, in offset order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lastword.log.pieces import Piece
from lastword.model import LogFile

TASK_BYTES = 128 << 20  # of files
LATEST_TASK_BYTES = 1 << 30  # each task scans the keys of all that is newer than what it reads


def pieces_of(files: Sequence[LogFile], start: int, end: int) -> list[Piece]:
    """What is read of these files to have the offsets [start, end)."""
    return [
        _piece(file, start, end)
        for file in files
        if file.last_offset >= start and file.base_offset < end
    ]


def split(
    partitions: Sequence[Sequence[Piece]],
    task_bytes: int,
    fewest_tasks: int | None = None,
    most_records: int | None = None,
) -> list[tuple[Piece, ...]]:
    """The pieces of each task, which has about `task_bytes` at the most, and never `most_records` more.

    There are about `fewest_tasks` at the least.
    """
    total = sum(piece.records for pieces in partitions for piece in pieces)
    tasks: list[tuple[Piece, ...]] = []
    for pieces in partitions:
        records = sum(piece.records for piece in pieces)
        if not records:
            continue
        parts = math.ceil(sum(piece.bytes for piece in pieces) / task_bytes)
        if most_records is not None:
            parts = max(parts, math.ceil(records / most_records))
        if fewest_tasks is not None:
            parts = max(parts, math.ceil(fewest_tasks * records / total))
        tasks += _in_parts(pieces, math.ceil(records / max(1, parts)), task_bytes)
    return tasks


def _piece(file: LogFile, start: int, end: int) -> Piece:
    """The rows that may be wanted; where no offset is missing, just these."""
    count = file.facts.records
    if not file.is_dense:
        return Piece(file, 0, count, start, end)
    first, stop = max(0, start - file.base_offset), min(count, end - file.base_offset)
    return Piece(file, first, stop, start, end)


def _in_parts(
    pieces: Sequence[Piece], most_records: int, most_bytes: int
) -> Iterator[tuple[Piece, ...]]:
    """Runs of at most so many records, and about so many bytes."""
    part: list[Piece] = []
    records, size = most_records, most_bytes
    for whole in pieces:
        piece = whole
        while piece.records:
            fits = max(1, size * piece.records // max(1, piece.bytes))
            taken = replace(piece, stop=min(piece.stop, piece.first + min(records, fits)))
            piece = replace(piece, first=taken.stop)
            part.append(taken)
            records, size = records - taken.records, size - taken.bytes
            if records <= 0 or size <= 0:
                yield tuple(part)
                part, records, size = [], most_records, most_bytes
    if part:
        yield tuple(part)
