"""Cleaner against cleaner: Kafka's and ours on the same records, in the same run.

Kafka's broker has its stock flags and 128 MiB for maps, ours as much; pages are warm. Time counts from
the moment the cleaner is let go until its first dirty offset is where it should be. Spark has started and
done one small pass before; the broker has just taken the records in.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import lastword
from bench import reference_set
from bench.processes import cpu_seconds, forget_peaks, peak_mb
from bench.reference_set import PARTITIONS, SEGMENT_RECORDS, SEGMENTS
from bench.rival import DAY_MS, Piece, fillers, pieces, produce
from broker import STOCK, Broker, broker
from broker.client import Kafka
from lastword.jobs.session import found_or_started
from lastword.store import Store

RECORDS = PARTITIONS * SEGMENTS * SEGMENT_RECORDS
UPDATES = RECORDS // PARTITIONS // 10  # of each partition
RECORD_BYTES = reference_set.KEY_BYTES + reference_set.VALUE_BYTES
TIMES = 2
_NAME = "reference"
_MAPS = str(128 << 20)


@dataclass(frozen=True)
class Run:
    """One pass over all partitions."""

    seconds: float
    cpu_seconds: float
    written_mb: float
    peak_mb: float


def kafka(folder: Path) -> dict[str, str]:
    """A first pass over 4 M records and a second one after 10 % updates: Kafka's cleaner and ours."""
    table = ["| cleaner | pass | s | MB/s | CPU s | MB written | peak MB |", "|---" * 7 + "|"]
    for codec in ("uncompressed", "lz4"):
        url = folder / codec
        with lastword.open(url) as store:
            store.alter({"log.cleaner.min.cleanable.ratio": 0})
            reference_set.fill(store, _NAME, codec=codec)
        for name, measure in {
            "Kafka, {} thread(s)": _kafkas,
            "lastword, {} core(s)": _ours,
        }.items():
            for count in (1, 2):
                table += _rows(f"{name.format(count)}, {codec}", measure, url, codec, count)
        shutil.rmtree(url)
    raw = (RECORDS * RECORD_BYTES / 1e6, UPDATES * PARTITIONS * RECORD_BYTES / 1e6)
    said = f"best of {TIMES}; MB/s of raw records: {raw[0]:.0f} MB, and {raw[1]:.0f} MB of updates"
    return {said: "\n" + "\n".join(table)}


Measure = Callable[[Path, str, int], list[Run]]  # a first pass and a second one


def _rows(name: str, measure: Measure, url: Path, codec: str, count: int) -> Iterator[str]:
    """The best runs of a cleaner, as rows of the table."""
    runs: dict[str, list[Run]] = defaultdict(list)
    for _ in range(TIMES):
        for pass_, run in zip(("first", "second"), measure(url, codec, count), strict=True):
            runs[pass_].append(run)
    new = {"first": RECORDS, "second": UPDATES * PARTITIONS}
    for pass_, all_ in runs.items():
        best = min(all_, key=lambda run: run.seconds)
        rate = new[pass_] * RECORD_BYTES / 1e6 / best.seconds
        row = f"| {name} | {pass_} | {best.seconds:.2f} | {rate:.0f} | {best.cpu_seconds:.1f} "
        yield f"{row}| {best.written_mb:.0f} | {best.peak_mb:.0f} |"


def _kafkas(url: Path, codec: str, threads: int) -> list[Run]:
    """Kafka's passes, over the same records in the same partitions."""
    settings = {"log.cleaner.threads": str(threads), "log.cleaner.dedupe.buffer.size": _MAPS}
    codec = "none" if codec == "uncompressed" else codec
    now_ms = int(time.time() * 1000)
    with broker(STOCK, settings) as its, lastword.open(url) as store:
        held = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 1}
        Kafka(its).create(PARTITIONS, held, _NAME)
        produce(its, _NAME, pieces(store.topic(_NAME)), now_ms - 30 * DAY_MS, codec)
        produce(its, _NAME, fillers(range(PARTITIONS)), now_ms - 20 * DAY_MS, codec)
        first = _cleaned(its, RECORDS // PARTITIONS)
        Kafka(its).alter(_NAME, held)
        produce(its, _NAME, _updates(), now_ms - 20 * DAY_MS, codec)
        produce(its, _NAME, fillers(range(PARTITIONS)), now_ms - 10 * DAY_MS, codec)
        return [first, _cleaned(its, RECORDS // PARTITIONS + 1 + UPDATES)]


def _cleaned(its: Broker, first_dirty: int) -> Run:
    """Let Kafka's cleaner go, until it has come so far in all partitions."""
    client = Kafka(its)
    forget_peaks(its.pid)
    began, cpu = time.perf_counter(), cpu_seconds(its.pid)
    client.alter(_NAME, {"min.cleanable.dirty.ratio": 0})
    client.wait_until_cleaned({(_NAME, number): first_dirty for number in range(PARTITIONS)})
    seconds = time.perf_counter() - began
    written = 0
    for folder in its.data.glob(f"{_NAME}-*"):
        *clean, _active = sorted(folder.glob("*.log"))
        written += sum(file.stat().st_size for file in clean)  # a pass writes all of it anew
    return Run(seconds, cpu_seconds(its.pid) - cpu, written / 1e6, peak_mb(its.pid))


def _updates() -> Iterator[Piece]:
    for number in range(PARTITIONS):
        table = reference_set.records(UPDATES, 1000 + number, number)
        yield number, table["key"].to_pylist(), table["value"].to_pylist()


def _ours(url: Path, _codec: str, cores: int) -> list[Run]:
    """Our passes, on a copy of the store, in a process of their own."""
    copy = url.with_name("copy")
    shutil.copytree(url, copy)
    words = [sys.executable, "-m", "bench.kafka", str(copy), f"local[{cores}]"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    shutil.rmtree(copy)
    if done.returncode:
        raise AssertionError(done.stderr)
    return [Run(**run) for run in json.loads(done.stdout.splitlines()[-1])]


def _measured(url: str, master: str) -> list[Run]:
    """In that process: a small pass, then both."""
    found_or_started(master, is_quick=False)
    with TemporaryDirectory() as folder, lastword.open(folder) as small:
        small.create_topic("t", PARTITIONS).append([(f"k{i % 9}", "v") for i in range(999)])
        small.clean(force=True)
    with lastword.open(url) as store:
        first = _pass(store)
        topic = store.topic(_NAME)
        for number in range(PARTITIONS):
            topic.append(reference_set.records(UPDATES, 1000 + number, number))
        topic.roll()
        return [first, _pass(store)]


def _pass(store: Store) -> Run:
    forget_peaks(os.getpid())
    began, cpu = time.perf_counter(), cpu_seconds(os.getpid())
    passes = store.clean(_NAME)
    seconds = time.perf_counter() - began
    assert [p.error for p in passes] == [None] * PARTITIONS
    written = sum(p.bytes_written for p in passes) / 1e6
    return Run(seconds, cpu_seconds(os.getpid()) - cpu, written, peak_mb(os.getpid()))


if __name__ == "__main__":
    print(json.dumps([asdict(run) for run in _measured(*sys.argv[1:])]))
