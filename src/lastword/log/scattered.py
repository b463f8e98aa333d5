"""Keys in several partitions, because records named theirs or partitions were added: which counts?

The last record of each partition that has the key is its word; among these the newest by timestamp
counts, a value before a tombstone of the same time, then the higher partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lastword.config import LONG_MAX
from lastword.files.reader import FileReader
from lastword.files.root import DataRoot
from lastword.log.pieces import chosen_batches
from lastword.log.scan import Bools
from lastword.model import LogFile, Record


def rank(record: Record) -> tuple[int, bool, int]:
    """By which the last records of a key in several partitions are compared: the highest counts."""
    return record.timestamp or 0, record.value is not None, record.partition or 0  # type: ignore[return-value]


@dataclass(frozen=True)
class Living:
    """The last records of a file: which of its rows, from an offset on."""

    file: LogFile
    rows: Bools
    start: int


def winners(root: DataRoot, files: Sequence[Living]) -> dict[str, Bools]:
    """The rows that count, of these last records of all partitions; values only, by path."""
    read = [_Ranks.of(root, living) for living in files]
    if not read:
        return {}
    codes = _codes([chunk for ranks in read for chunk in ranks.keys])
    partitions = np.concatenate([np.full(len(r.timestamps), r.partition) for r in read])
    timestamps = np.concatenate([r.timestamps for r in read])
    is_value = np.concatenate([r.is_value for r in read])
    order = np.lexsort((partitions, is_value, timestamps, codes))
    is_last = np.append(np.diff(codes[order]) != 0, [True] * bool(len(order)))
    counts = np.zeros(len(codes), np.bool_)
    counts[order[is_last]] = is_value[order[is_last]]
    found, first = {}, 0
    for ranks, living in zip(read, files, strict=True):
        rows = np.zeros(len(living.rows), np.bool_)
        rows[ranks.rows] = counts[first : first + len(ranks.rows)]
        found[living.file.facts.path] = rows
        first += len(ranks.rows)
    return found


def _codes(keys: list[pa.Array]) -> NDArray[np.int32]:
    """A number for each key, the same for the same key."""
    whole = pa.chunked_array(keys, pa.binary()).cast(pa.large_binary()).combine_chunks()
    return np.asarray(whole.dictionary_encode().indices)


@dataclass(frozen=True)
class _Ranks:
    """What decides about the last records of one file."""

    partition: int
    rows: NDArray[np.int64]
    keys: list[pa.Array]
    timestamps: NDArray[np.int64]
    is_value: Bools

    @classmethod
    def of(cls, root: DataRoot, living: Living) -> _Ranks:
        reader, first = FileReader(root, living.file), 0
        chosen = living.rows.copy()
        batches: list[pa.RecordBatch] = []
        for row_group in reader.row_groups(0, LONG_MAX):
            stop = first + reader.rows(row_group)
            if living.file.base_offset < living.start:
                offsets = reader.read(row_group, [])["offset"].to_numpy()
                chosen[first:stop] &= offsets >= living.start
            columns = ("timestamp", "tombstone", "key")
            batches += chosen_batches(reader, row_group, columns, chosen[first:stop])
            first = stop
        table = pa.Table.from_batches(batches, None if batches else _EMPTY)
        return cls(
            living.file.partition,
            np.flatnonzero(chosen),
            table["key"].chunks,
            table["timestamp"].cast(pa.int64()).to_numpy(),
            ~table["tombstone"].to_numpy(),
        )


_EMPTY = pa.schema({"timestamp": pa.int64(), "tombstone": pa.bool_(), "key": pa.binary()})
