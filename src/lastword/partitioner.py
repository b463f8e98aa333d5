"""Kafka's default partitioner: murmur2 over the key's bytes, vectorised over an Arrow array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)
_LONG_WORDS = 256  # keys with more are hashed one by one: too few share a word position


def murmur2(keys: pa.BinaryArray) -> NDArray[np.int32]:
    """The murmur2 hash of every key, as Kafka's Java client computes it.

    Keys are sorted by length, longest first, so that the keys which still have a word number w
    are a prefix: one vector step per word position serves them all. Null keys hash as empty.
    """
    starts, lengths, data = _layout(keys)
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]

    h = (np.uint32(_SEED) ^ lengths.astype(np.uint32)).astype(np.uint32)
    word_counts = lengths // 4
    if word_counts.size and word_counts[0]:
        words: NDArray[np.uint32] = np.ndarray(
            (data.size - 3,), dtype="<u4", buffer=data, strides=(1,)
        )
        long = int(np.searchsorted(-word_counts, -_LONG_WORDS, side="left"))
        for i in range(long):
            h[i] = _mixed(int(h[i]), words[starts[i] : starts[i] + 4 * word_counts[i] : 4])
        _mix_together(h[long:], words, starts[long:], word_counts[long:])

    tails, ends = lengths % 4, starts + word_counts * 4
    for i in (2, 1, 0):
        has = tails > i
        h[has] ^= data[ends[has] + i].astype(np.uint32) << np.uint32(8 * i)
    h[tails > 0] *= _M
    h ^= h >> np.uint32(13)
    h *= _M
    h ^= h >> np.uint32(15)

    hashes = np.empty_like(h)
    hashes[order] = h
    return hashes.view(np.int32)


def _mix_together(
    h: NDArray[np.uint32],
    words: NDArray[np.uint32],
    starts: NDArray[np.int64],
    word_counts: NDArray[np.int64],
) -> None:
    """Mix word after word into all hashes at once."""
    ascending = -word_counts
    for w in range(int(word_counts[0]) if word_counts.size else 0):
        n = int(np.searchsorted(ascending, -w, side="left"))
        h[:n] = h[:n] * _M ^ _scrambled(words[starts[:n] + 4 * w])


def _mixed(h: int, words: NDArray[np.uint32]) -> int:
    """Mix the words of one long key into its hash."""
    m = int(_M)
    for k in _scrambled(words).tolist():
        h = (h * m & 0xFFFFFFFF) ^ k
    return h


def _scrambled(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    k = words * _M
    k ^= k >> np.uint32(24)
    return k * _M


def partition_for(keys: pa.BinaryArray, partitions: int) -> NDArray[np.int32]:
    """The partition of every key in a topic of that many partitions."""
    if partitions == 1:
        return np.zeros(len(keys), np.int32)
    return (murmur2(keys) & np.int32(0x7FFFFFFF)) % np.int32(partitions)


def _layout(keys: pa.BinaryArray) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
    """Where each key begins, how long it is, and the bytes that they all lie in."""
    _, offsets_buffer, data_buffer = keys.buffers()
    if offsets_buffer is None or len(keys) == 0:
        empty = np.zeros(len(keys), np.int64)
        return empty, empty, np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts, ends = bounds[:-1].astype(np.int64), bounds[1:].astype(np.int64)
    lengths = ends - starts
    if keys.null_count:
        lengths[np.asarray(keys.is_null())] = 0
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.zeros(0, np.uint8)
    return starts, lengths, data
