"""lastword mirror|publish"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastword.cli.live import LogLines, interrupt_on_signals, job_progress
from lastword.cli.options import (
    AsJson,
    SparkConf,
    SparkMaster,
    StoreUrl,
    TopicName,
    milliseconds,
    opened,
    pairs,
)
from lastword.cli.render import errors, plain, show_line
from lastword.errors import LastwordError, SparkError
from lastword.jobs.session import found_or_started
from lastword.jobs.spark import SparkRunner
from lastword.kafka.cluster import Cluster, client_properties
from lastword.kafka.counterparts import Wanted
from lastword.kafka.mirror import Mirror, MirrorRound, release
from lastword.kafka.plan import MOST_OFFSETS
from lastword.kafka.publish import Publisher, Publishing, PublishRound, View
from lastword.store import Store
from lastword.words import in_bytes

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


def mirror(
    bootstrap_servers: BootstrapServers = "",
    topic: Annotated[
        list[str] | None, typer.Option(show_default=False, help="A topic; again for more.")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(show_default=False, help="A regular expression for whole names of topics."),
    ] = None,
    prefix: Annotated[str, typer.Option(help="Put this before the names here.")] = "",
    config: Annotated[
        list[str] | None,
        typer.Option(help="A setting of topics that are made, KEY=VALUE, instead of Kafka's."),
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Copy what is there now, and end.")
    ] = False,
    interval: Annotated[
        str, typer.Option(help="How long to wait when all is copied: 500ms, 30s, ….")
    ] = "1s",
    max_offsets: MaxOffsets = MOST_OFFSETS,
    allow_loss: AllowLoss = False,
    release_: Annotated[
        bool, typer.Option("--release", help="Make mirrors ordinary topics, which take appends.")
    ] = False,
    command_config: CommandConfig = None,
    packages: Packages = None,
    jars: Jars = None,
    master: SparkMaster = None,
    spark_conf: SparkConf = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Copy topics of a Kafka cluster into the store, offsets and all, until interrupted.

    Partitions, timestamps, headers and settings are taken over. What Kafka has compacted away stays a
    gap; what it has lost, or a topic that was made anew, ends the copy of that topic with an error.
    """
    if release_:
        if not topic:
            raise typer.BadParameter("--release takes --topic")
        with opened(store) as opened_store:
            for name in topic:
                release(opened_store.base, name)
        return
    if not bootstrap_servers:
        raise typer.BadParameter("--bootstrap-servers is needed")
    wanted = Wanted(
        names=tuple(topic or ()),
        pattern=pattern,
        prefix=prefix,
        settings=pairs(config or []),
        most_offsets=max_offsets,
        allow_loss=allow_loss,
    )
    wait_ms, properties = milliseconds(interval), client_properties(command_config)
    with opened(store, create=True) as opened_store:
        spark = _Spark(master, spark_conf, packages, jars)
        with spark.cluster(bootstrap_servers, properties) as (cluster, runner):
            rounds = Mirror(opened_store.base, cluster, runner, wanted)
            if available_now:
                is_sound = _once(rounds, as_json)
            else:
                is_sound = _for_ever(rounds, spark.stop, wait_ms, as_json)
    if not is_sound:
        raise typer.Exit(1)


def publish(
    topic: TopicName,
    bootstrap_servers: BootstrapServers,
    to: Annotated[str, typer.Option(help="Its name in Kafka, if it is another one.")] = "",
    view: Annotated[
        View, typer.Option(help="The log, or only the last record of every key.")
    ] = View.LOG,
    tombstones: Annotated[
        bool, typer.Option("--tombstones/--no-tombstones", help="Send deletions, too.")
    ] = True,
    append: Annotated[
        bool, typer.Option("--append", help="Send, even if the topic in Kafka has records.")
    ] = False,
    max_offsets: MaxOffsets = MOST_OFFSETS,
    allow_loss: AllowLoss = False,
    command_config: CommandConfig = None,
    packages: Packages = None,
    jars: Jars = None,
    master: SparkMaster = None,
    spark_conf: SparkConf = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Fill a topic of a Kafka cluster from the store; made there if it is missing.

    Sends what the topic has now, and next time what has come since. After a crash, a round may be sent
    again. Timestamps are those of the sending.
    """
    asked = Publishing(
        topic=topic,
        to=to,
        view=view,
        tombstones=tombstones,
        most_offsets=max_offsets,
        allow_loss=allow_loss,
        is_append=append,
    )
    properties = client_properties(command_config)
    with opened(store) as opened_store:
        opened_store.topic(topic)  # an unknown one is known before Spark is started
        spark = _Spark(master, spark_conf, packages, jars)
        with spark.cluster(bootstrap_servers, properties) as (cluster, runner):
            _publish(opened_store, cluster, runner, asked, as_json)


class _Spark:
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


def _once(mirror_: Mirror, as_json: bool) -> bool:
    """Rounds until all is copied that was there; whether there was no trouble."""
    for done in mirror_.rounds():
        _show_mirrored(done, as_json, show_line)
    return not done.troubles


def _for_ever(rounds: Mirror, stop: threading.Event, wait_ms: int, as_json: bool) -> bool:
    """Rounds until it is told to stop. What goes wrong is told once, and tried again."""
    told = LogLines()
    trouble = ""
    with suppress(KeyboardInterrupt):
        while not stop.is_set():
            try:
                done = rounds.round()
            except LastwordError as error:
                if rounds.is_over:
                    raise
                if str(error) != trouble:
                    told.say(f"trouble, to be tried again: {error}")
                trouble = str(error)
                stop.wait(max(1.0, wait_ms / 1000))
                continue
            sentences = "\n".join(f"{t.where}: {t.sentence}" for t in done.troubles)
            if done.records or done.remarks or sentences != trouble:
                _show_mirrored(done, as_json, told.say)
            trouble = sentences
            if not (done.has_moved and done.lag):
                stop.wait(wait_ms / 1000)
    told.say("stopped; the next mirror goes on from here")
    return True


def _show_mirrored(done: MirrorRound, as_json: bool, say: Callable[[str], None]) -> None:
    if as_json:
        totals = {"records": done.records, "lag": done.lag}
        print(json.dumps({**totals, **plain(done)}), flush=True)
        return
    for remark in done.remarks:
        say(remark)
    for trouble in done.troubles:
        say(f"not copied: {trouble.where}: {trouble.sentence}")
    for p in done.partitions:
        if p.records or p.lag:
            say(
                f"{p.topic}-{p.partition}: {p.records} record(s), to offset {p.log_end}, lag {p.lag}"
            )
    rate = done.records / max(done.seconds, 0.001)
    say(
        f"{done.records} record(s), {in_bytes(done.bytes)} in {done.seconds:.1f} s "
        f"({rate:,.0f} records/s); lag {done.lag}"
    )


def _publish(
    store: Store, cluster: Cluster, runner: SparkRunner, asked: Publishing, as_json: bool
) -> None:
    publisher = Publisher(store.base, store.url, cluster, runner, asked)
    for remark in publisher.remarks:
        errors.print(remark, markup=False, highlight=False, soft_wrap=True)
    done = PublishRound({}, 1, 0)
    while done.lag:
        done = publisher.round()
        if as_json:
            print(json.dumps(plain(done)), flush=True)
            continue
        for number, (start, end) in done.sent.items():
            show_line(f"{asked.topic}-{number}: offsets {start} to {end - 1}")
        show_line(f"round done in {done.seconds:.1f} s; {done.lag} offset(s) left")
    if not as_json:
        show_line(f"all is sent; position kept as group {publisher.group}")
