"""What `mirror` and `publish` share: the options of a Kafka cluster, and Spark with its Kafka source."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastword.cli.live import interrupt_on_signals, job_progress
from lastword.cli.options import pairs
from lastword.errors import SparkError
from lastword.jobs.session import found_or_started
from lastword.jobs.spark import SparkRunner
from lastword.kafka.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The newest that Maven Central has with all that it needs; it serves later Sparks as well.
_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"

BootstrapServers = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers",
        envvar="KAFKA_BOOTSTRAP_SERVERS",
        show_default=False,
        help="Brokers of the cluster, host:port,….",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        show_default=False,
        help="A file of client settings, as for Kafka's own tools: security and the like.",
    ),
]
Packages = Annotated[
    str | None,
    typer.Option(
        envvar="LASTWORD_KAFKA_PACKAGES",
        show_default=False,
        help=f"Spark's Kafka source as Maven coordinates; else {_CONNECTOR}.",
    ),
]
Jars = Annotated[
    str | None,
    typer.Option(
        envvar="LASTWORD_KAFKA_JARS",
        show_default=False,
        help="Spark's Kafka source as jar files, separated by commas, instead.",
    ),
]
AllowLoss = Annotated[
    bool,
    typer.Option("--allow-loss", help="Go on where records or tombstones were lost in between."),
]
MaxOffsets = Annotated[
    int, typer.Option("--max-offsets-per-round", min=1, help="How many offsets a round takes.")
]


class KafkaSpark:
    """Spark with its Kafka source, and the cluster that it reaches."""

    def __init__(
        self, master: str | None, conf: list[str] | None, packages: str | None, jars: str | None
    ) -> None:
        self._master, self._conf = master, pairs(conf or [])
        self.stop = threading.Event()
        if jars is not None:
            self._conf["spark.jars"] = jars
        elif packages is not None:
            self._conf["spark.jars.packages"] = packages
        self._is_guess = not {"spark.jars", "spark.jars.packages"} & set(self._conf)

    @contextmanager
    def cluster(self, bootstrap: str, properties: str) -> Iterator[tuple[Cluster, SparkRunner]]:
        with job_progress() as progress:
            runner = SparkRunner(self._session(), progress)
            interrupt_on_signals(runner, self.stop)
            with Cluster(runner.session, bootstrap, properties) as cluster:
                yield cluster, runner

    def _session(self) -> SparkSession:
        if not self._is_guess:
            return found_or_started(self._master, self._conf, is_quick=False)
        conf = {**self._conf, "spark.jars.packages": _CONNECTOR}
        try:
            return found_or_started(self._master, conf, is_quick=False)
        except SparkError as error:
            raise SparkError(
                f"{error}. If it did not find its Kafka source, {_CONNECTOR}: give another by "
                "--packages, or its jars by --jars"
            ) from error
