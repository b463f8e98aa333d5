"""The log without Spark: append, single appends, read, plan.

Every figure is a ratio to bare pyarrow doing the same work in the same run, or a latency; best of
several, because the neighbours are noisy.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lastword
from lastword.catalog import queries
from lastword.catalog.schema import file
from lastword.config import Compression

RECORDS = 1_000_000
VALUE_BYTES = 1_000
KEYS = 100_000


_READ_AND_TELL = """
import lastword, sys

def peak_mb():
    return next(int(l.split()[1]) // 1024 for l in open("/proc/self/status") if "VmHWM" in l)

topic = lastword.open(sys.argv[1]).topic("t")
before = peak_mb()
for batch in topic.read(partition=0).batches():
    pass
print(f"{peak_mb() - before} MB over the {before} MB of the process")
"""


def records(count: int = RECORDS, seed: int = 1) -> pa.Table:
    """Records of about 1 kB: 16-byte keys, values that compress to about a quarter."""
    random = np.random.default_rng(seed)
    noise = random.integers(0, 256, size=(count, VALUE_BYTES // 5), dtype=np.uint8)
    text = np.frombuffer(b'{"street":"Baker Street","city":"London","n":1}' * 40, np.uint8)
    values = np.empty((count, VALUE_BYTES), np.uint8)
    values[:, : VALUE_BYTES // 5] = noise
    values[:, VALUE_BYTES // 5 :] = text[: VALUE_BYTES - VALUE_BYTES // 5]
    keys = np.char.zfill(random.integers(0, KEYS, count).astype(str), 16).astype("S16")
    return pa.table({"key": _fixed(keys.view(np.uint8), 16), "value": _fixed(values, VALUE_BYTES)})


def append(folder: Path) -> dict[str, str]:
    """One append of 1 M records against one bare write_table of the same table."""
    table = records()
    megabytes = table.nbytes / 1e6
    topics = {
        n: lastword.open(folder / f"append-{n}").create_topic("t", partitions=n) for n in (1, 4)
    }
    bare: list[float] = []
    ours: dict[int, list[float]] = {n: [] for n in topics}
    for i in range(7):
        bare.append(_seconds(partial(pq.write_table, table, folder / f"bare-{i}.parquet")))
        for n, topic in topics.items():
            ours[n].append(_seconds(partial(topic.append, table)))
    found = {"bare write_table": f"{min(bare):.2f} s, {megabytes / min(bare):.0f} MB/s"}
    for n, seconds in ours.items():
        best = min(seconds)
        found[f"append, {n} partition(s)"] = (
            f"{best:.2f} s, {megabytes / best:.0f} MB/s, {RECORDS / best / 1e6:.2f} M records/s, "
            f"{best / min(bare):.2f} × bare"
        )
    return found


def single_appends(folder: Path) -> dict[str, str]:
    """1,000 appends of one record each, one after the other."""
    topic = lastword.open(folder / "single").create_topic("t")
    seconds = []
    for i in range(1_000):
        began = time.perf_counter()
        topic.append([(f"key-{i % 100}", "x" * 100)])
        seconds.append(time.perf_counter() - began)
    ms = sorted(1000 * s for s in seconds)
    return {"append of one record": f"median {statistics.median(ms):.1f} ms, p99 {ms[989]:.1f} ms"}


def read(folder: Path) -> dict[str, str]:
    """Read 1 M records against bare pyarrow reading the same files."""
    store = lastword.open(folder / "read")
    topic = store.create_topic("t")
    topic.append(records())
    paths = sorted(store.base.root.full(f.path) for f in store.base.root.files())
    megabytes = records(1000).nbytes / 1e6 * RECORDS / 1000

    def bare() -> None:
        for path in paths:
            for _batch in pq.ParquetFile(path).iter_batches(batch_size=16_384):
                pass

    def ours() -> None:
        for _batch in topic.read(partition=0).batches():
            pass

    pairs = [(_seconds(bare), _seconds(ours)) for _ in range(7)]
    b, o = min(p[0] for p in pairs), min(p[1] for p in pairs)
    whole = _best(lambda: [pq.read_table(path) for path in paths])
    as_records = _best(lambda: sum(1 for _r in topic.read(partition=0)), times=1)
    return {
        "bare ParquetFile.iter_batches": f"{b:.2f} s, {megabytes / b:.0f} MB/s",
        "bare read_table, all in memory": f"{whole:.2f} s, {megabytes / whole:.0f} MB/s",
        "topic.read().batches()": f"{o:.2f} s, {megabytes / o:.0f} MB/s, {o / b:.2f} × bare",
        "iterating Records": f"{as_records:.2f} s, {RECORDS / as_records / 1e6:.2f} M records/s",
    }


def read_memory(folder: Path) -> dict[str, str]:
    """Peak memory of a process that reads a topic, for two sizes of topic."""
    found = {}
    for count in (250_000, RECORDS):
        url = folder / f"memory-{count}"
        lastword.open(url).create_topic("t").append(records(count))
        done = subprocess.run(
            [sys.executable, "-c", _READ_AND_TELL, str(url)],
            check=True,
            capture_output=True,
            text=True,
        )
        found[f"read {count:,} records of 1 kB, peak memory"] = done.stdout.strip()
    return found


def plan(folder: Path) -> dict[str, str]:
    """Plan a read in the middle of a topic of 100,000 files."""
    store = lastword.open(folder / "plan")
    row = store.create_topic("t").row
    fake = {"topic_id": row.id, "partition": 0, "segment_base": 0, "records": 10, "bytes": 1000}
    facts = {
        "tombstones": 0,
        "null_keys": 0,
        "first_ms": 0,
        "max_ms": 0,
        "footer_crc": 0,
        "added_commit": 1,
    }
    with store.base.catalog.write() as tx:
        tx.execute(
            file.insert(),
            [
                {**fake, **facts, "base_offset": 10 * i, "last_offset": 10 * i + 9, "path": f"f{i}"}
                for i in range(100_000)
            ],
        )
    wanted = (500_000, 1_000_000)
    seconds = _best(lambda: queries.read_plan(store.base.catalog, row, 0, wanted, limit=1_000), 20)
    return {"plan a read in the middle of 100,000 files": f"{1000 * seconds:.1f} ms"}


def codecs(folder: Path) -> dict[str, str]:
    """Write and read 1 M records with each codec, on one thread, checksums on."""
    table = records()
    found = {}
    for codec in Compression:
        path = str(folder / codec)
        options = {"compression": codec.replace("uncompressed", "none"), "row_group_size": 16_384}
        write = partial(pq.write_table, table, path, write_page_checksum=True, **options)
        seconds = _best(write, 3)

        def read(path: str = path) -> None:
            file = pq.ParquetFile(path, page_checksum_verification=True)
            for _batch in file.iter_batches(batch_size=16_384, use_threads=False):
                pass

        megabytes = Path(path).stat().st_size / 1e6
        found[codec.value] = (
            f"write {seconds:.2f} s, read {_best(read, 3):.2f} s, {megabytes:.0f} MB"
        )
    return found


def _fixed(cells: np.ndarray, width: int) -> pa.Array:
    count = cells.size // width
    offsets = pa.py_buffer(np.arange(0, (count + 1) * width, width, dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(cells.tobytes())])


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _best(work: Callable[[], object], times: int = 5) -> float:
    return min(_seconds(work) for _ in range(times))
