"""The reference set: what the cleaner is measured on, here and against other cleaners.

4 partitions × 5 segments × 200,000 records of about 1 kB with 16-byte keys; half of the keys uniform
and half Zipf over 100,000 keys per partition; 2 % tombstones. 4 M records, of which 10 % survive.
BENCH_SCALE=0.02 in the environment makes it that much smaller, to try something.
"""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa

from lastword.store import Store
from lastword.topic import Topic

SCALE = float(os.environ.get("BENCH_SCALE", "1"))
PARTITIONS, SEGMENTS, SEGMENT_RECORDS = 4, 5, int(200_000 * SCALE)
KEYS, KEY_BYTES, VALUE_BYTES = int(100_000 * SCALE), 16, 1_000
TOMBSTONE_SHARE = 0.02
CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": 1 << 50,
    "message.timestamp.before.max.ms": 1 << 62,
}

_TEXT = np.frombuffer(b'{"street":"Baker Street","city":"London","n":1}' * 40, np.uint8)


def fill(
    store: Store, name: str = "reference", *, by_hash: bool = False, codec: str = "lz4"
) -> Topic:
    """A topic with the reference set, every segment rolled.

    Its records name their partitions, as other cleaners were given them; `by_hash`, their keys do.
    """
    topic = store.create_topic(name, PARTITIONS, CONFIG | {"compression.type": codec})
    for segment in range(SEGMENTS):
        seed = segment * PARTITIONS
        if by_hash:
            topic.append(everywhere(SEGMENT_RECORDS, seed))
        else:
            for partition in range(PARTITIONS):
                topic.append(records(SEGMENT_RECORDS, seed + partition, partition))
        topic.roll()
    return topic


def everywhere(count: int, seed: int) -> pa.Table:
    """So many records for each partition, in one table, which their keys' hashes spread."""
    tables = [records(count, seed + partition, partition) for partition in range(PARTITIONS)]
    return pa.concat_tables(tables).drop_columns("partition")


def records(count: int, seed: int, partition: int) -> pa.Table:
    """Records for one partition, from a seed."""
    random = np.random.default_rng(seed)
    uniform = random.integers(0, KEYS, count)
    zipf = random.zipf(1.2, count) % KEYS
    numbers = np.where(random.random(count) < 0.5, uniform, zipf)
    keys = np.char.add(f"{partition:02d}-", np.char.zfill(numbers.astype(str), KEY_BYTES - 3))
    noise = random.integers(0, 256, (count, VALUE_BYTES // 5), np.uint8)
    values = np.empty((count, VALUE_BYTES), np.uint8)
    values[:, : VALUE_BYTES // 5] = noise
    values[:, VALUE_BYTES // 5 :] = _TEXT[: VALUE_BYTES - VALUE_BYTES // 5]
    return pa.table(
        {
            "key": binary(
                np.ascontiguousarray(keys.astype(f"S{KEY_BYTES}")).view(np.uint8), KEY_BYTES
            ),
            "value": binary(values, VALUE_BYTES, random.random(count) < TOMBSTONE_SHARE),
            "partition": pa.array(np.full(count, partition, np.int32)),
        }
    )


def binary(cells: np.ndarray, width: int, nulls: np.ndarray | None = None) -> pa.Array:
    """Cells of one width as a binary array."""
    count = cells.size // width
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    array = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(cells.tobytes())]
    )
    if nulls is None:
        return array
    return pa.compute.if_else(pa.array(nulls), pa.scalar(None, pa.binary()), array)
