"""The map of a scan: key → last offset, in bounded memory, keys compared in full.

Arrow's hash look-up builds its table anew at each call, so look-ups come in batches as large as the
map. When it is full, it is split: half of the keys, by a bit of their hash, are let go, and whoever
fills it comes back for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lastword.partitioner import murmur2

_SCRAMBLE = np.uint32(0x9E3779B1)  # keys of one partition agree in murmur2's remainder
_SLOT_BYTES = 80  # of an entry, besides its key
_MOST_KEY_BYTES = 1 << 30  # well below what a binary array can hold
_MOST_SHARDS = 1 << 30


@dataclass(frozen=True)
class Shard:
    """The keys whose hash leaves remainder `index` when divided by `of`."""

    index: int = 0
    of: int = 1

    def holds(self, keys: pa.BinaryArray) -> NDArray[np.bool_]:
        """Which of these keys are in the shard."""
        if self.of == 1:
            return np.ones(len(keys), np.bool_)
        hashes = murmur2(keys).view(np.uint32) * _SCRAMBLE
        hashes ^= hashes >> np.uint32(15)
        found: NDArray[np.bool_] = hashes % np.uint32(self.of) == self.index
        return found

    def halves(self) -> tuple[Shard, Shard]:
        return Shard(self.index, 2 * self.of), Shard(self.index + self.of, 2 * self.of)


def entry_bytes(count: int, key_bytes: int) -> int:
    """What so many entries take: a key stands in the map, and in the table of a look-up."""
    return _SLOT_BYTES * count + 2 * key_bytes


class OffsetMap:
    """The last offset of every key that was put. A key is put once: newest records come first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._keys = pa.array([], pa.binary())
        self._offsets = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def fill(self) -> float:
        """How full it is: its bytes, look-up included, of what it may have."""
        return entry_bytes(len(self), self._keys.nbytes) / self._most_bytes

    @property
    def is_too_full(self) -> bool:
        is_over = self.fill > 1 or self._keys.nbytes > _MOST_KEY_BYTES
        return is_over and len(self) > 1

    def entries(self) -> dict[bytes, int]:
        """What is in it, for looking."""
        return dict(zip(self._keys.to_pylist(), self._offsets.tolist(), strict=True))

    def find(self, keys: pa.Array) -> NDArray[np.int64]:
        """The last offset of each key; -1 where it is not in the map, or null."""
        if not len(self) or not len(keys):
            return np.full(len(keys), -1, np.int64)
        rows = pc.fill_null(pc.index_in(keys, value_set=self._keys, skip_nulls=True), -1)
        rows = np.asarray(rows.to_numpy(zero_copy_only=False))
        return np.where(rows >= 0, self._offsets[rows], -1)

    def put(self, keys: pa.BinaryArray, offsets: NDArray[np.int64]) -> None:
        """Add keys that are not in it."""
        self._keys = pa.concat_arrays([self._keys, keys])
        self._offsets = np.concatenate([self._offsets, offsets])

    def split(self, shard: Shard) -> tuple[Shard, list[Shard]]:
        """Let keys go until it fits: the shard that is left, and those to come back for."""
        let_go: list[Shard] = []
        while self.is_too_full and shard.of < _MOST_SHARDS:
            shard, other = shard.halves()
            let_go.append(other)
            stays = shard.holds(self._keys)
            self._keys = self._keys.filter(pa.array(stays))
            self._offsets = self._offsets[stays]
        return shard, let_go
