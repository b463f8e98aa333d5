"""The key index of a file: the rows where a key may be, without reading keys.

An entry is the hash of a row's key and the row, in one number of 64 bits. The entries, sorted, lie in
blocks between the last row group and the footer, where readers of Parquet do not look; so the index
is part of its file and goes with it. The footer's metadata says where it is, and has the first hash
and the checksum of every block: a look-up reads one block, and knows that it is good.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lastword.partitioner import murmur2

METADATA_KEY = "lastword.keys"

_BLOCK_ENTRIES = 512
_ENTRY = np.dtype("<u8")
_WORD = np.dtype("<u4")

Entries = NDArray[np.uint64]


def hash_of(key: bytes) -> int:
    """The hash under which the index has a key."""
    return int(murmur2(pa.array([key], pa.binary())).view(np.uint32)[0])


class KeyIndexWriter:
    """The index of a file that is being written."""

    def __init__(self) -> None:
        self._entries: list[Entries] = []
        self._rows = 0

    def add(self, keys: pa.ChunkedArray) -> None:
        """The keys of the next rows."""
        for chunk in keys.chunks:
            hashes = murmur2(chunk).view(np.uint32).astype(_ENTRY)
            rows = np.arange(self._rows, self._rows + len(chunk), dtype=_ENTRY)
            entries = hashes << np.uint64(32) | rows
            if chunk.null_count:
                entries = entries[np.asarray(chunk.is_valid())]
            self._entries.append(entries)
            self._rows += len(chunk)

    def entries(self) -> Entries:
        """All entries so far, sorted."""
        return np.sort(np.concatenate(self._entries or [np.empty(0, _ENTRY)]))

    def write(self, sink: pa.NativeFile) -> str:
        """Write it here; what the metadata says of it."""
        position = sink.tell()
        entries = self.entries()
        blocks = [
            entries[start : start + _BLOCK_ENTRIES]
            for start in range(0, len(entries), _BLOCK_ENTRIES)
        ]
        sink.write(entries.tobytes())
        first_hashes = (entries[::_BLOCK_ENTRIES] >> np.uint64(32)).astype(_WORD)
        checksums = np.array([crc32(block.tobytes()) for block in blocks], _WORD)
        directory = base64.b64encode(first_hashes.tobytes() + checksums.tobytes()).decode()
        return f"{position} {len(entries)} {directory}"


@dataclass(frozen=True)
class KeyIndex:
    """Where the index of a file is, and what its blocks hold."""

    position: int
    entries: int
    first_hashes: NDArray[np.uint32]
    checksums: NDArray[np.uint32]

    @classmethod
    def parsed(cls, said: bytes) -> KeyIndex:
        """The index that a file's metadata tells of."""
        position, entries, *directory = said.decode().split(" ")
        words = np.frombuffer(base64.b64decode("".join(directory)), _WORD)
        first_hashes, checksums = np.split(words, 2)
        return cls(int(position), int(entries), first_hashes, checksums)

    def rows(self, source: pa.NativeFile, key_hash: int) -> list[int]:
        """The rows whose keys have this hash, in order; ValueError if a block is corrupt."""
        first = int(self.first_hashes.searchsorted(np.uint32(key_hash), "left"))
        stop = int(self.first_hashes.searchsorted(np.uint32(key_hash), "right"))
        found: list[int] = []
        for number in range(max(0, first - 1), stop):
            block = self._block(source, number)
            low = int(block.searchsorted(np.uint64(key_hash << 32)))
            high = int(block.searchsorted(np.uint64(key_hash << 32 | 0xFFFFFFFF), "right"))
            found += [int(entry) & 0xFFFFFFFF for entry in block[low:high]]
        return found

    def all_entries(self, source: pa.NativeFile) -> Iterator[Entries]:
        """Every block, verified."""
        for number in range(len(self.checksums)):
            yield self._block(source, number)

    def _block(self, source: pa.NativeFile, number: int) -> Entries:
        start = number * _BLOCK_ENTRIES
        count = min(_BLOCK_ENTRIES, self.entries - start)
        stored = source.read_at(count * _ENTRY.itemsize, self.position + start * _ENTRY.itemsize)
        if crc32(stored) != self.checksums[number]:
            raise ValueError(f"block {number} of its key index does not have its checksum")
        return np.frombuffer(stored, _ENTRY)
