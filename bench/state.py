"""State from the log: restore every key, look one up, restart a table; against a Kafka consumer.

The reference set, by the hash of its keys, as most topics are. Best of several, interleaved; pages
warm. Kafka is given the same records in the same partitions, and consumed once it has compacted them.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import lastword
from bench import reference_set
from bench.reference_set import KEY_BYTES, PARTITIONS, SCALE, SEGMENT_RECORDS, SEGMENTS
from bench.rival import UNPAUSED, Rival, rival
from broker import BrokerError
from lastword.store import Store
from lastword.testing import InProcess
from lastword.topic import Topic

RECORDS = PARTITIONS * SEGMENTS * SEGMENT_RECORDS
RECORD_BYTES = KEY_BYTES + reference_set.VALUE_BYTES
TIMES, TABLE_TIMES = 5, 3
FILES, FILE_KEYS, SMALL_VALUE_BYTES = 100, int(100_000 * SCALE), 100
CONSUMERS: dict[str, Mapping[str, int]] = {
    "Kafka consumer": {},
    "Kafka consumer without pauses": UNPAUSED,
}
INTO_DICT = ", into a dict"
LOOKUPS, COLD_LOOKUPS, WARM_UP_LOOKUPS = 1_000, 30, 50

Seconds = dict[str, list[float]]
Ways = dict[str, Callable[[], float]]  # each takes so many seconds

_RESTORE_AND_TELL = """
import lastword, sys

def peak_mb():
    return next(int(l.split()[1]) // 1024 for l in open("/proc/self/status") if "VmHWM" in l)

topic = lastword.open(sys.argv[1]).topic("reference")
before = peak_mb()
for batch in topic.latest().batches():
    pass
print(f"{peak_mb() - before} MB over the {before} MB of the process")
"""


def state(folder: Path) -> dict[str, str]:
    """Restore 400,000 keys of 4 M records, look up keys among 10 M, restart a table."""
    return {**_restores(folder), **_scattered(folder), **_lookups(folder), **_tables(folder)}


def _restores(folder: Path) -> dict[str, str]:
    """The latest values before and after a pass, and a consumer of the same topic in Kafka."""
    url = folder / "restores"
    with lastword.open(url) as store:
        topic = reference_set.fill(store, by_hash=True)
        seconds, live = _timed(_ways(topic, "before")), len(topic.latest().to_dict())
        memory = {"before": _peak_memory(url)}
        try:
            with rival(topic, live) as kafka:
                _clean(store)
                seconds |= _timed({**_ways(topic, "after"), **_rival_ways(kafka)})
            found = _restore_figures(seconds, live, kafka)
        except (BrokerError, ImportError) as missing:
            _clean(store)
            seconds |= _timed(_ways(topic, "after"))
            found = {**_restore_figures(seconds, live), "Kafka": f"left out: {missing}"}
        memory["after"] = _peak_memory(url)
    for when, peak in memory.items():
        found[f"latest().batches() {when} a pass, peak memory"] = peak
    return found


def _ways(topic: Topic, when: str) -> Ways:
    def batches() -> int:
        return sum(batch.num_rows for batch in topic.latest().batches())

    return {
        f"latest().batches() {when} a pass": lambda: _seconds(batches),
        f"latest().to_dict() {when} a pass": lambda: _seconds(topic.latest().to_dict),
    }


def _rival_ways(kafka: Rival) -> Ways:
    def into_dict(settings: Mapping[str, int]) -> float:
        found: dict[bytes | None, bytes | None] = {}
        return kafka.consume(
            lambda messages: found.update((m.key(), m.value()) for m in messages), settings
        )

    ways: Ways = {}
    for name, settings in CONSUMERS.items():
        ways[name] = partial(kafka.consume, len, settings)
        ways[name + INTO_DICT] = partial(into_dict, settings)
    return ways


def _restore_figures(seconds: Seconds, live: int, kafka: Rival | None = None) -> dict[str, str]:
    found = {"live keys": f"{live:,} of {RECORDS:,} records"}
    for name, runs in seconds.items():
        best = min(runs)
        megabytes = live * RECORD_BYTES / 1e6
        found[name] = f"{best:.2f} s, {live / best:,.0f} live keys/s, {megabytes / best:,.0f} MB/s"
        if kafka is not None and name.startswith("Kafka"):
            found[name] += f", {kafka.records / best:,.0f} records/s with tombstones"
        elif kafka is not None:
            end = INTO_DICT if "to_dict" in name else ""
            ratios = [
                f"{min(seconds[each + end]) / best:.1f} × the {each}{end}" for each in CONSUMERS
            ]
            found[name] += f", the speed is {'; '.join(ratios)}"
        found[name] += _all(runs)
    if kafka is not None:
        starts = statistics.median(kafka.start_seconds)
        found["Kafka consumers, until the first message (not counted above)"] = f"{starts:.2f} s"
    return found


def _scattered(folder: Path) -> dict[str, str]:
    """The reference set as other cleaners were given it: in other partitions than the hash names."""
    with lastword.open(folder / "scattered") as store:
        topic = reference_set.fill(store)
        _clean(store)
        runs = _timed({"to_dict": lambda: _seconds(topic.latest().to_dict)})["to_dict"]
    best = f"{min(runs):.2f} s{_all(runs)}"
    return {"latest().to_dict() after a pass, records that name their partitions": best}


def _lookups(folder: Path) -> dict[str, str]:
    """`get` of single keys, in a topic of 100 files."""
    random = np.random.default_rng(6)
    chosen = [_key(number) for number in random.integers(0, FILES * FILE_KEYS, LOOKUPS)]
    asked = {"present": chosen, "absent": [b"no" + key for key in chosen]}
    found = {"look-ups": f"among {FILES * FILE_KEYS:,} keys in {FILES} files"}
    with lastword.open(folder / "lookups") as store:
        topic = store.create_topic("many")
        for number in range(FILES):
            topic.append(_small_records(number, random))
        for what, keys in asked.items():
            cold = [_seconds(partial(_cold, store, key)) for key in keys[-COLD_LOOKUPS:]]
            found[f"get(key), {what}, a new handle each time"] = (
                f"{_median_ms(cold)}, worst of {COLD_LOOKUPS} {1000 * max(cold):.1f} ms"
            )
        for key in chosen[:WARM_UP_LOOKUPS]:
            if topic.get(key).value is None:
                raise AssertionError(f"{key!r} was not found")
        for what, keys in asked.items():
            warm = sorted(_seconds(partial(topic.get, key)) for key in keys)
            found[f"get(key), {what}, warm"] = (
                f"{_median_ms(warm)}, p99 {1000 * warm[LOOKUPS * 99 // 100 - 1]:.1f} ms"
            )
    return found


def _cold(store: Store, key: bytes) -> object:
    return store.topic("many").get(key)


def _key(number: int) -> bytes:
    return b"%016d" % number


def _small_records(file: int, random: np.random.Generator) -> pa.Table:
    """Records of 100 bytes with keys that no other file has."""
    numbers = random.permutation(np.arange(file * FILE_KEYS, (file + 1) * FILE_KEYS))
    keys = np.char.zfill(numbers.astype("S"), KEY_BYTES)
    values = random.integers(97, 123, (FILE_KEYS, SMALL_VALUE_BYTES), np.uint8)
    return pa.table(
        {
            "key": reference_set.binary(keys.view(np.uint8), KEY_BYTES),
            "value": reference_set.binary(values, SMALL_VALUE_BYTES),
        }
    )


def _tables(folder: Path) -> dict[str, str]:
    """A table's restart from its snapshot after 1 % new records, against a full restore."""
    found: dict[str, str] = {}
    seeds = count(1_000, PARTITIONS)
    with lastword.open(folder / "tables") as store:
        topic = reference_set.fill(store, by_hash=True)
        for when in ("before", "after"):
            if when == "after":
                _clean(store)
            seconds: Seconds = defaultdict(list)
            for _ in range(TABLE_TIMES):
                _table_round(topic, folder / "snapshot", next(seeds), seconds)
            found |= {f"{n} {when} a pass": f for n, f in _table_figures(seconds).items()}
    return found


def _table_round(topic: Topic, path: Path, seed: int, seconds: Seconds) -> None:
    def opened(name: str, **how: Any) -> int:
        began = time.perf_counter()
        with topic.table(**how) as table:
            seconds[name].append(time.perf_counter() - began)
            return len(table)

    opened("table(snapshot=new)", snapshot=path)
    topic.append(reference_set.everywhere(RECORDS // 100 // PARTITIONS, seed))
    restarted = opened("table(snapshot=old)", snapshot=path)
    if opened("table()") != restarted:
        raise AssertionError("a table that was restarted differs from one that was restored")
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def _table_figures(seconds: Seconds) -> dict[str, str]:
    best = {name: min(runs) for name, runs in seconds.items()}
    found = {name: f"{best[name]:.2f} s" for name in best}
    restart = best["table(snapshot=old)"]
    found["table(snapshot=old)"] += (
        f" with {RECORDS // 100:,} new records, "
        f"table(snapshot=new) takes {best['table(snapshot=new)'] / restart:.1f} ×, "
        f"table() {best['table()'] / restart:.1f} × as long"
    )
    return {name: figure + _all(seconds[name]) for name, figure in found.items()}


def _clean(store: Store) -> None:
    failed = [its.error for its in store.clean(force=True, runner=InProcess()) if its.error]
    if failed:
        raise AssertionError(failed)


def _peak_memory(url: Path) -> str:
    tell = [sys.executable, "-c", _RESTORE_AND_TELL, str(url)]
    return subprocess.run(tell, check=True, capture_output=True, text=True).stdout.strip()


def _timed(ways: Ways) -> Seconds:
    """The seconds of each way, interleaved; the first time is to warm up."""
    seconds: Seconds = defaultdict(list)
    for i in range(TIMES + 1):
        for name, way in ways.items():
            taken = way()
            if i:
                seconds[name].append(taken)
    return seconds


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - began
    del result  # to free it is not part of it
    return seconds


def _median_ms(seconds: list[float]) -> str:
    return f"median {1000 * statistics.median(seconds):.1f} ms"


def _all(runs: list[float]) -> str:
    return f" (all runs: {', '.join(f'{s:.2f}' for s in runs)})"
