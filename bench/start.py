"""Cold starts: a new process, its Spark, and the first that it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

import lastword

RUNS = 3
FIRST = {
    "pass": "store.clean('t', force=True, spark=spark)",
    "read": "spark.read.format('lastword').options(**source).load().count()",
    "stream": textwrap.dedent(
        """
        stream = spark.readStream.format("lastword").options(**source, startingOffsets="earliest").load()
        sink = stream.drop("partition").writeStream.format("lastword").trigger(availableNow=True)
        sink.options(store=url, topic="out", checkpointLocation=url + "/checkpoint").start().awaitTermination()
        """
    ),
}
PROCESS = textwrap.dedent(
    """
    import sys, time
    import lastword
    from lastword.jobs.session import found_or_started

    url, first = sys.argv[1:]
    source = {"store": url, "subscribe": "t"}
    store = lastword.open(url, create=False)
    spark = found_or_started("local[2]")
    began = time.perf_counter()
    exec(first)
    print(time.perf_counter() - began)
    """
)


def start(folder: Path) -> dict[str, str]:
    """The first of its kind in a cold Spark: workers that load PySpark from its zip, and ours."""
    found = defaultdict(list)
    for run in range(RUNS):
        for what, first in FIRST.items():
            for how, given in (("zip", {"PYSPARK_PYTHON": sys.executable}), ("ours", {})):
                url = str(folder / f"{what}-{how}-{run}")
                with lastword.open(url) as store:
                    store.create_topic("out")
                    store.create_topic("t").append([("a", "1"), ("a", "2")])
                found[what, how].append(_seconds(url, first, given))
    figures = {}
    for what in FIRST:
        theirs, ours = min(found[what, "zip"]), min(found[what, "ours"])
        figures[what] = f"{theirs:.1f} s from the zip, {ours:.1f} s ours, {ours / theirs:.2f} ×"
    return figures


def _seconds(url: str, first: str, given: dict[str, str]) -> float:
    environment = {k: v for k, v in os.environ.items() if k != "PYSPARK_PYTHON"} | given
    words = [sys.executable, "-c", PROCESS, url, first]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])
