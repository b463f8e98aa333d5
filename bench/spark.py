"""Spark's door on the reference set, against plain Spark on the same files in the same run."""

from __future__ import annotations

import shutil
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lastword
from bench import reference_set
from bench.cleaner import RAW_MB, RECORDS, frame
from lastword.jobs.session import found_or_started
from lastword.spark import dataframe
from lastword.store import Store

TIMES = 5
Seconds = dict[str, list[float]]


def spark(folder: Path) -> dict[str, str]:
    """Read, latest view, write and stream 4 M records, best of 5, warm Spark."""
    session = found_or_started(is_quick=False)
    url = str(folder / "store")
    with lastword.open(url) as store:
        reference_set.fill(store)
        found = {**_reads(session, store, url), **_writes(session, store, url, folder)}
        found |= _streams(session, store, url, folder)
        before = _latest(session, store, url, " before a pass")
        store.clean(spark=session)
        return found | before | _latest(session, store, url, " after a pass")


def _reads(session: Any, store: Store, url: str) -> dict[str, str]:
    """All columns, and keys only, four ways."""
    paths = _paths(store)
    source = session.read.format("lastword").options(store=url, subscribe="reference")
    fast = "lastword.spark.dataframe"
    ways: dict[str, Callable[[], Any]] = {
        "spark.read.parquet": lambda: session.read.parquet(*paths),
        fast: lambda: dataframe(session, "reference", store=url),
        'format("lastword")': source.load,
    }
    keys: dict[str, Callable[[], Any]] = {
        "spark.read.parquet, keys": lambda: session.read.parquet(*paths).select("key"),
        f"{fast}, keys and offsets": lambda: dataframe(session, "reference", store=url).select(
            "key", "offset"
        ),
        'format("lastword"), keys and offsets': session.read.format("lastword")
        .options(store=url, subscribe="reference", columns="key,offset")
        .load,
    }
    seconds = _timed({name: partial(_read, way) for name, way in {**ways, **keys}.items()})
    found = _ratios(seconds, list(ways)) | _ratios(seconds, list(keys))
    everything, only_keys = _bytes_read(ways[fast]), _bytes_read(keys[f"{fast}, keys and offsets"])
    found["read from files for all columns, and for keys and offsets"] = (
        f"{everything / 1e6:.0f} MB, {only_keys / 1e6:.0f} MB"
    )
    return found


def _latest(session: Any, store: Store, url: str, when: str) -> dict[str, str]:
    """The latest view, and the idiom that people write without it."""
    view = session.read.format("lastword").options(store=url, subscribe="reference", view="latest")
    ways = {
        f"row_number{when}": lambda: _noop(_row_number(frame(session, store))),
        f"view=latest{when}": lambda: _noop(view.load()),
    }
    return _ratios(_timed(ways), list(ways))


def _writes(session: Any, store: Store, url: str, folder: Path) -> dict[str, str]:
    """The same rows, read natively, written as Parquet and as a topic."""
    rows = dataframe(session, "reference", store=url).select("key", "value", "partition")
    store.create_topic("copy", reference_set.PARTITIONS, reference_set.CONFIG)

    def parquet() -> None:
        rows.write.option("compression", "lz4_raw").mode("overwrite").parquet(str(folder / "out"))

    def topic() -> None:
        rows.write.format("lastword").options(store=url, topic="copy").mode("append").save()

    ways = {"df.write.parquet": parquet, 'df.write.format("lastword")': topic}
    seconds = _timed(ways)
    found = _ratios(seconds, list(ways))
    best = min(seconds['df.write.format("lastword")'])
    found['df.write.format("lastword")'] += f", {RAW_MB / best:.0f} MB/s raw"
    store.topic("copy").delete()
    shutil.rmtree(folder / "out")
    return found


def _streams(session: Any, store: Store, url: str, folder: Path) -> dict[str, str]:
    """Source to sink, all that is there; then small batches, one after the other."""
    store.create_topic("streamed", reference_set.PARTITIONS, reference_set.CONFIG)
    stream = session.readStream.format("lastword").options(
        store=url, subscribe="reference", startingOffsets="earliest", maxOffsetsPerTrigger=500_000
    )
    sink = {"store": url, "topic": "streamed", "checkpointLocation": str(folder / "checkpoint")}
    writer = stream.load().writeStream.format("lastword").options(**sink)
    began = time.perf_counter()
    writer.trigger(availableNow=True).start().awaitTermination()
    seconds = time.perf_counter() - began
    query = writer.trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    latencies = []
    for n in range(20):
        end = _records(store, "streamed")
        began = time.perf_counter()
        store.topic("reference").append([(f"{i}", f"{n}") for i in range(10)])
        while _records(store, "streamed") < end + 10:
            time.sleep(0.005)
        latencies.append(time.perf_counter() - began)
    query.stop()
    return {
        "stream, source to sink, 4 partitions": (
            f"{RECORDS / seconds:,.0f} records/s, {RAW_MB / seconds:.0f} MB/s, {seconds:.1f} s with the start"
        ),
        "from an append of 10 records to its copy in the sink": (
            f"median {statistics.median(latencies) * 1000:.0f} ms, "
            f"worst of 20 {max(latencies) * 1000:.0f} ms"
        ),
    }


def _timed(ways: dict[str, Callable[[], None]]) -> Seconds:
    """The seconds of each way, interleaved; the first time is to warm up."""
    seconds: Seconds = defaultdict(list)
    for i in range(TIMES + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if i:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def _ratios(seconds: Seconds, names: list[str]) -> dict[str, str]:
    """The best of each, and the ratio to the first."""
    base = min(seconds[names[0]])
    return {
        name: f"{min(seconds[name]):.2f} s, {min(seconds[name]) / base:.2f} × "
        f"(all runs: {', '.join(f'{s:.2f}' for s in seconds[name])})"
        for name in names
    }


def _read(way: Callable[[], Any]) -> None:
    _noop(way())


def _noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _row_number(frame: Any) -> Any:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    newest = Window.partitionBy("partition", "key").orderBy(f.col("offset").desc())
    ranked = frame.withColumn("rank", f.row_number().over(newest))
    return ranked.where("rank = 1 AND value IS NOT NULL").drop("rank")


def _bytes_read(way: Callable[[], Any]) -> int:
    """What Spark's process reads while a query runs, by the kernel's count."""
    frame = way()
    before = _read_by_java()
    _noop(frame)
    return _read_by_java() - before


def _read_by_java() -> int:
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"org.apache.spark" in (process / "cmdline").read_bytes():
                total += int((process / "io").read_text().split()[1])
        except OSError:
            continue
    return total


def _paths(store: Store) -> list[str]:
    root = store.base.root
    return [root.full(f.path) for f in root.files() if f.path.startswith("reference/")]


def _records(store: Store, name: str) -> int:
    return sum(end for _, end in store.topic(name).offsets().values())
