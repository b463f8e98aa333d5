"""lastword mirror"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import typer

from lastword.cli.kafka import (
    AllowLoss,
    BootstrapServers,
    CommandConfig,
    Jars,
    KafkaSpark,
    MaxOffsets,
    Packages,
)
from lastword.cli.live import LogLines
from lastword.cli.options import (
    AsJson,
    SparkConf,
    SparkMaster,
    StoreUrl,
    milliseconds,
    opened,
    pairs,
)
from lastword.cli.render import plain, show_line
from lastword.errors import LastwordError
from lastword.kafka.cluster import client_properties
from lastword.kafka.counterparts import Wanted
from lastword.kafka.mirror import Mirror, MirrorRound
from lastword.kafka.plan import MOST_OFFSETS
from lastword.words import in_bytes


def mirror(
    bootstrap_servers: BootstrapServers,
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
        spark = KafkaSpark(master, spark_conf, packages, jars)
        with spark.cluster(bootstrap_servers, properties) as (cluster, runner):
            rounds = Mirror(opened_store.base, cluster, runner, wanted)
            if available_now:
                is_sound = _once(rounds, as_json)
            else:
                is_sound = _for_ever(rounds, spark.stop, wait_ms, as_json)
    if not is_sound:
        raise typer.Exit(1)


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
