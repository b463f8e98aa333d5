"""`python -m bench [name …]`: run benchmarks and print their figures."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from pathlib import Path

from bench import cleaner, flips, kafka, log, mirror, spark, start, state, ui
from bench.reference_set import SCALE

BENCHMARKS = {
    f.__name__: f
    for f in (
        log.append,
        log.single_appends,
        log.read,
        log.read_memory,
        log.plan,
        log.codecs,
        flips.flips,
        cleaner.cleaner,
        spark.spark,
        state.state,
        kafka.kafka,
        mirror.mirror,
        ui.ui,
        start.start,
    )
}


def main(names: list[str]) -> None:
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.machine()}")
    if SCALE != 1:
        print(f"BENCH_SCALE={SCALE}: the reference set is smaller than it is said to be")
    for name in names or BENCHMARKS:
        with tempfile.TemporaryDirectory(prefix="lastword-bench-") as folder:
            print(f"\n{name}: {(BENCHMARKS[name].__doc__ or '').splitlines()[0]}")
            for what, figure in BENCHMARKS[name](Path(folder)).items():
                print(f"  {what}: {figure}")


if __name__ == "__main__":
    main(sys.argv[1:])
