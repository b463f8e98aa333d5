"""The cleaner on the reference set, against two Spark idioms on the same files in the same run."""

from __future__ import annotations

import resource
import shutil
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import lastword
from bench import reference_set
from bench.reference_set import PARTITIONS, SEGMENT_RECORDS, SEGMENTS
from lastword.catalog import queries
from lastword.config import LONG_MAX
from lastword.jobs.session import found_or_started
from lastword.passes import Pass
from lastword.store import Store

RECORDS = PARTITIONS * SEGMENTS * SEGMENT_RECORDS
RAW_MB = RECORDS * (reference_set.KEY_BYTES + reference_set.VALUE_BYTES) / 1e6
TIMES = 5


def cleaner(folder: Path) -> dict[str, str]:
    """A first pass over 4 M records and a second one after 10 % updates, best of 5, warm Spark."""
    spark = found_or_started(is_quick=False)
    with lastword.open(folder / "store") as store:
        reference_set.fill(store)
    seconds: dict[str, list[float]] = defaultdict(list)
    firsts, saved = [], _Saved(folder / "store")
    for _ in range(TIMES + 1):  # the first is to warm up
        for idiom in (_window, _join):
            began = time.perf_counter()
            with lastword.open(folder / "store") as store:
                idiom(frame(spark, store), str(folder / "out"))
            seconds[(idiom.__doc__ or "").strip(".")].append(time.perf_counter() - began)
            shutil.rmtree(folder / "out")
        firsts.append(_timed_round(folder, spark, seconds["pass"]))
        saved.restore()
    memory = {"peak memory of a Python worker": f"{_peak_mb(spark)} MB"}
    return {**_figures(seconds, firsts), **_second(folder, spark), **memory}


def _second(folder: Path, spark: Any) -> dict[str, str]:
    """The second pass, after 10 % updates."""
    with lastword.open(folder / "store") as store:
        store.clean(spark=spark)
        for partition in range(PARTITIONS):
            updates = reference_set.records(
                RECORDS // PARTITIONS // 10, 1000 + partition, partition
            )
            store.topic("reference").append(updates)
        store.topic("reference").roll()
        store.alter({"log.cleaner.min.cleanable.ratio": 0})
    seconds: list[float] = []
    saved = _Saved(folder / "store")
    for _ in range(TIMES):
        done = _timed_round(folder, spark, seconds)
        saved.restore()
    sizes = f"{done.bytes_written / 1e6:.0f} MB written of {done.bytes_in / 1e6:.0f} MB"
    return {f"second pass, after {RECORDS // 10:,} updates": f"{min(seconds):.2f} s, {sizes}"}


def _timed_round(folder: Path, spark: Any, seconds: list[float]) -> Pass:
    """Clean all partitions, as one pass with sums; the jobs, and so their seconds, are common."""
    sums = ("records_in", "records_out", "bytes_in", "bytes_out", "bytes_read", "bytes_written")
    with lastword.open(folder / "store") as store:
        began = time.perf_counter()
        passes = store.clean(spark=spark)
        seconds.append(time.perf_counter() - began)
    return replace(passes[0], **{n: sum(getattr(p, n) for p in passes) for n in sums})


def _figures(seconds: dict[str, list[float]], passes: list[Pass]) -> dict[str, str]:
    warm = {name: min(all_[1:]) for name, all_ in seconds.items()}
    idiom = min(s for name, s in warm.items() if name != "pass")
    best = warm["pass"]
    mark = min(p.seconds["mark"] for p in passes[1:])
    sweep = min(p.seconds["sweep"] for p in passes[1:])
    done = passes[-1]
    found = {name: f"{s:.2f} s" for name, s in warm.items() if name != "pass"}
    found["mark"] = (
        f"{mark:.2f} s, {1e9 * mark / RECORDS:.0f} ns per record, {mark / idiom:.2f} × the better idiom"
    )
    found["sweep"] = f"{sweep:.2f} s, {1e9 * sweep / RECORDS:.0f} ns per record"
    found["whole pass"] = (
        f"{best:.2f} s, {1e9 * best / RECORDS:.0f} ns per record, {RAW_MB / best:.0f} MB/s raw, "
        f"{best / idiom:.2f} × the better idiom (all runs: "
        + ", ".join(f"{s:.2f}" for s in seconds["pass"][1:])
        + ")"
    )
    found["bytes"] = (
        f"{done.bytes_in / 1e6:.0f} → {done.bytes_out / 1e6:.0f} MB, "
        f"{done.bytes_read / 1e6:.0f} MB read, {done.bytes_written / 1e6:.0f} MB written"
    )
    found["records"] = f"{done.records_in:,} → {done.records_out:,}"
    return found


def _peak_mb(spark: Any) -> int:
    """The largest that a Python worker has ever been: they are used again and again."""

    def peaks(batches: Any) -> Any:
        for batch in batches:
            kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            yield pa.RecordBatch.from_pydict({"kb": [kilobytes] * batch.num_rows})

    rows = spark.range(0, 8, 1, 8).mapInArrow(peaks, "kb long").toArrow()
    return int(max(rows["kb"].to_pylist()) / 1024)


class _Saved:
    """The catalog as it is now, to go back to: the files of a store are never changed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._copies = folder, folder.parent / "saved"
        shutil.rmtree(self._copies, ignore_errors=True)
        self._copies.mkdir()
        self._files = set(folder.rglob("*.parquet"))
        for file in folder.glob("catalog.db*"):
            shutil.copy(file, self._copies)

    def restore(self) -> None:
        for file in self._folder.glob("catalog.db*"):
            file.unlink()
        for file in self._copies.iterdir():
            shutil.copy(file, self._folder)
        for file in set(self._folder.rglob("*.parquet")) - self._files:
            file.unlink()


def frame(spark: Any, store: Store) -> Any:
    """The live files as Spark reads them by itself, with partition and offset."""
    from pyspark.sql import functions as f

    topic = queries.topic_named(store.base.catalog, "reference")
    files = [
        file
        for number in range(topic.partitions)
        for file in queries.read_plan(store.base.catalog, topic, number, (0, LONG_MAX))[1]
    ]
    paths = [store.base.root.full(file.facts.path) for file in files]
    bases = spark.createDataFrame(
        [
            (path.rsplit("/", 1)[1], x.base_offset, x.partition)
            for path, x in zip(paths, files, strict=True)
        ],
        "name string, base long, partition int",
    )
    read = spark.read.parquet(*paths).withColumn("name", f.col("_metadata.file_name"))
    joined = read.join(f.broadcast(bases), "name")
    return joined.withColumn("offset", f.col("base") + f.col("offset_delta")).drop(
        "name", "base", "offset_delta"
    )


def _window(frame: Any, out: str) -> None:
    """row_number window."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    newest = Window.partitionBy("partition", "key").orderBy(f.col("offset").desc())
    ranked = frame.withColumn("rank", f.row_number().over(newest)).where("rank = 1").drop("rank")
    _write(
        ranked.repartition(PARTITIONS, "partition").sortWithinPartitions("partition", "offset"), out
    )


def _join(frame: Any, out: str) -> None:
    """groupBy + broadcast join."""
    from pyspark.sql import functions as f

    last = frame.groupBy("partition", "key").agg(f.max("offset").alias("offset"))
    _write(frame.join(f.broadcast(last), ["partition", "key", "offset"], "left_semi"), out)


def _write(frame: Any, out: str) -> None:
    frame.write.option("compression", "lz4_raw").parquet(out)
