"""The mirror on the reference set, from a local broker; against Spark writing the same as plain Parquet."""

from __future__ import annotations

import json
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import lastword
from bench import reference_set
from bench.reference_set import KEY_BYTES, PARTITIONS, SEGMENT_RECORDS, SEGMENTS, VALUE_BYTES
from bench.rival import pieces, produce
from broker import STOCK, broker
from broker.client import Kafka
from broker.jars import connector_jars
from lastword.jobs.session import found_or_started
from lastword.jobs.spark import SparkRunner
from lastword.kafka.cluster import Cluster
from lastword.kafka.counterparts import Wanted
from lastword.kafka.mirror import Mirror
from lastword.kafka.publish import Publisher, Publishing

RECORDS = PARTITIONS * SEGMENTS * SEGMENT_RECORDS
RAW_MB = RECORDS * (KEY_BYTES + VALUE_BYTES) / 1e6
TIMES = 3
_NAME = "reference"


def mirror(folder: Path) -> dict[str, str]:
    """Copy 4 M records from Kafka and back, best of 3; the same job writing plain Parquet beside it."""
    spark = found_or_started(conf={"spark.jars": connector_jars()}, is_quick=False)
    seconds: dict[str, list[float]] = defaultdict(list)
    with broker(STOCK) as its, Cluster(spark, its.bootstrap) as cluster:
        Kafka(its).create(PARTITIONS, {"cleanup.policy": "compact"}, _NAME)
        with lastword.open(folder / "source") as store:
            reference_set.fill(store)
            produce(its, _NAME, pieces(store.topic(_NAME)), int(time.time() * 1000))
        shutil.rmtree(folder / "source")
        for number in range(TIMES + 1):  # the first is to warm up
            seconds["plain Parquet"].append(_parquet(spark, its.bootstrap, folder / "plain"))
            seconds["mirror"].append(_mirrored(spark, cluster, folder / f"store-{number}"))
        with lastword.open(folder / f"store-{TIMES}") as store:
            began = time.perf_counter()
            publisher = Publisher(
                store.base, store.url, cluster, SparkRunner(spark), Publishing(_NAME, "back")
            )
            while publisher.round().lag:
                pass
            published = time.perf_counter() - began
    best = {name: min(all_[1:]) for name, all_ in seconds.items()}
    ratio = best["mirror"] / best["plain Parquet"]
    found = {name: _rate(s) for name, s in best.items()}
    found["mirror"] += f", {ratio:.2f} × plain Parquet"
    return {**found, "publish (once)": _rate(published)}


def _rate(seconds: float) -> str:
    return f"{seconds:.1f} s, {RECORDS / seconds:,.0f} records/s, {RAW_MB / seconds:.0f} MB/s"


def _mirrored(spark: Any, cluster: Cluster, url: Path) -> float:
    with lastword.open(url) as store:
        began = time.perf_counter()
        copy = Mirror(store.base, cluster, SparkRunner(spark), Wanted((_NAME,)))
        while copy.round().lag:
            pass
        seconds = time.perf_counter() - began
        assert sum(end for _, end in store.topic(_NAME).offsets().values()) == RECORDS
    if not url.name.endswith(str(TIMES)):
        shutil.rmtree(url)
    return seconds


def _parquet(spark: Any, bootstrap: str, out: Path) -> float:
    numbers = list(range(PARTITIONS))
    began = time.perf_counter()
    frame = spark.read.format("kafka").options(
        **{
            "kafka.bootstrap.servers": bootstrap,
            "assign": json.dumps({_NAME: numbers}),
            "includeHeaders": "true",
        }
    )
    frame.load().write.option("compression", "lz4_raw").parquet(str(out))
    seconds = time.perf_counter() - began
    shutil.rmtree(out)
    return seconds
