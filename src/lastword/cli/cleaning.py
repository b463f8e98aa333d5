"""lastword clean|cleaner|passes|why|metrics|warm-up"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from lastword.cleaner.choose import Asked, expire
from lastword.cleaner.metrics import PassTotals, as_prometheus, gauges
from lastword.cleaner.overview import overview
from lastword.cleaner.plan import Clean, Decision
from lastword.cleaner.run import Round
from lastword.cleaner.service import Service
from lastword.cleaner.verdicts import Verdict, verdicts
from lastword.cli.live import (
    LiveStatus,
    LogLines,
    interrupt_on_signals,
    job_progress,
    pass_line,
)
from lastword.cli.options import (
    AsJson,
    DryRun,
    Partition,
    SparkConf,
    SparkMaster,
    StoreUrl,
    TopicName,
    opened,
    pairs,
)
from lastword.cli.render import show_json, show_line, show_table
from lastword.jobs import archive
from lastword.jobs.session import found_or_started, java_binary
from lastword.jobs.spark import SparkRunner
from lastword.passes import Pass
from lastword.store import Store
from lastword.words import in_bytes, in_duration, in_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Topics = Annotated[
    list[str] | None,
    typer.Argument(show_default=False, help="The topics; all compacted ones if none."),
]


def clean(
    topics: Topics = None,
    partition: Partition = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Roll the active segment first, and ignore the dirty ratio."),
    ] = False,
    dry_run: DryRun = False,
    records: Annotated[
        bool, typer.Option("--records", help="With --dry-run: the verdict on every record.")
    ] = False,
    master: SparkMaster = None,
    spark_conf: SparkConf = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Compact what is eligible now, on Spark, and report.

    Where the policy has delete too, old segments are expired first. --force does not lift
    min.compaction.lag.ms.
    """
    if records and not dry_run:
        raise typer.BadParameter("--records goes with --dry-run")
    asked, names = Asked(partition, force), topics or []
    with opened(store) as opened_store:
        if dry_run:
            _dry_run(opened_store, names, asked, records, as_json)
            return
        opened_store.plan(*names, partition=partition)  # errors, before Spark is started
        conf = pairs(spark_conf or [])
        with job_progress() as progress:

            def session() -> SparkSession:
                found = found_or_started(master, conf)
                interrupt_on_signals(runner, threading.Event())
                return found

            runner = SparkRunner(session, progress)
            done = opened_store.clean_round(names, asked, runner)
    if as_json:
        left = [_as_json(d) for d in done.decisions if not isinstance(d, Clean)]
        show_json({"passes": done.passes, "expired": done.expired, "left": left})
    else:
        _show_round(done)
    if any(p.error for p in done.passes):
        raise typer.Exit(1)


def cleaner(
    master: SparkMaster = None,
    spark_conf: SparkConf = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Log lines instead of a live status.")
    ] = False,
    store: StoreUrl = None,
) -> None:
    """Keep the store compacted, until interrupted (Ctrl-C) or told to end (SIGTERM)."""
    stop, conf = threading.Event(), pairs(spark_conf or [])
    with opened(store) as opened_store:
        is_live = sys.stderr.isatty() and not plain
        shown = LiveStatus(opened_store.url) if is_live else LogLines()
        with shown:

            def new_runner() -> SparkRunner:
                runner = SparkRunner(found_or_started(master, conf, is_quick=False), shown.progress)
                interrupt_on_signals(runner, stop)
                return runner

            try:
                new_runner()  # if Spark cannot be started at all, say so and end
                shown.say("Spark has started; looking for work")
                Service(opened_store.base, new_runner, shown.tell, stop).run()
                shown.say("stopped")
            except KeyboardInterrupt:
                shown.say("stopped; the pass that was running is abandoned, nothing is lost")


def passes(
    topics: Annotated[
        list[str] | None, typer.Argument(show_default=False, help="The topics; all if none.")
    ] = None,
    partition: Partition = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List passes: what each covered, what it left, and why; with --json, all that it counted."""
    with opened(store) as opened_store:
        found = opened_store.passes(*(topics or []), partition=partition, limit=limit)
    if as_json:
        show_json(found)
    elif not found:
        show_line("no passes yet")
    else:
        _show_passes(found)


def why(
    topic: TopicName,
    partition: Partition = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Say what the cleaner would do with a topic now, and which rule holds it back."""
    with opened(store) as opened_store:
        answer = opened_store.topic(topic).why(partition)
    if as_json:
        show_json(answer)
    else:
        show_line(str(answer))


def metrics(store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Print metrics as Prometheus reads them: the cleaner's, topics', passes'; --json: Kafka's gauges."""
    with opened(store) as opened_store:
        seen = overview(opened_store.base)
        if as_json:
            show_json({gauge.name: gauge.value for gauge in gauges(seen)})
        else:
            totals = PassTotals().count(opened_store.base.catalog)
            print(as_prometheus(seen, totals), end="")


def warm_up() -> None:
    """Make Spark start in half the time on this machine: archive its classes, once."""
    with job_progress():
        made = archive.make(java_binary())
    show_line(f"Spark starts faster from now on: {made}, {in_bytes(made.stat().st_size)}")


def _dry_run(store: Store, topics: list[str], asked: Asked, records: bool, as_json: bool) -> None:
    decisions = store.plan(*topics, partition=asked.partition, force=asked.force)
    if records:
        planned = [d for d in decisions if isinstance(d, Clean)]
        found = (v for plan in planned for v in verdicts(store.base, plan))
        _show_verdicts(found, as_json)
        if planned or as_json:
            return
    rows = {d.state.topic.id: d.state.topic for d in decisions}
    expired = expire(store.base, rows.values(), asked, dry_run=True)
    if as_json:
        plans = [_as_json(d) for d in decisions]
        show_json({"plans": plans, "expired": expired})
        return
    for e in expired:
        show_line(f"{e.where}: would first expire {e}")
    for d in decisions:
        show_line(f"{d.state.where}: {_in_words(d)}")


def _in_words(decision: Decision) -> str:
    if not isinstance(decision, Clean):
        return f"would not be cleaned: {decision.reason}"
    records = sum(s.records for s in decision.covered)
    new = f", offsets {decision.start} to {decision.end - 1}" if decision.dirty_bytes else ""
    return f"would be cleaned ({decision.cause}){new}; {records} records are covered"


def _as_json(decision: Decision) -> dict[str, object]:
    is_clean = isinstance(decision, Clean)
    return {
        "topic": decision.state.topic.name,
        "partition": decision.state.row.partition,
        "clean": is_clean,
        "reason": decision.cause if isinstance(decision, Clean) else decision.reason,
        "start": decision.start if isinstance(decision, Clean) else None,
        "end": decision.end if isinstance(decision, Clean) else None,
        "dirty_ratio": decision.standing.dirty_ratio,
        "cleanable_bytes": decision.standing.cleanable_bytes,
    }


def _show_verdicts(found: Iterable[Verdict], as_json: bool) -> None:
    if as_json:
        keys = ((v, None if v.key is None else _text(v.key)) for v in found)
        show_json([{**vars(v), "key": key} for v, key in keys])
        return
    for v in found:
        sign = " " if v.is_kept else "-"
        print(f"{sign} {v.topic}-{v.partition}:{v.offset}\t{_text(v.key)}\t{v.sentence}")


def _show_round(done: Round) -> None:
    for e in done.expired:
        show_line(f"{e.where}: expired {e}")
    for d in done.decisions:
        if not isinstance(d, Clean):
            show_line(f"{d.state.where}: not cleaned: {d.reason}")
    for p in done.passes:
        show_line(pass_line(p))
    if not done.passes:
        show_line("nothing was cleaned")
    if len(done.passes) > 1:
        records_in, records_out, bytes_in, bytes_out = (
            sum(getattr(p, name) for p in done.passes)
            for name in ("records_in", "records_out", "bytes_in", "bytes_out")
        )
        show_line(
            f"{len(done.passes)} partitions: {records_in} → {records_out} records, "
            f"{in_bytes(bytes_in)} → {in_bytes(bytes_out)}"
        )


def _show_passes(found: list[Pass]) -> None:
    rows = [
        (
            p.id,
            f"{p.topic}-{p.partition}",
            in_time(p.started_ms),
            f"{p.start}–{p.end - 1}" if p.end > p.start else "",
            f"{p.records_in} → {p.records_out}",
            f"{in_bytes(p.bytes_in)} → {in_bytes(p.bytes_out)}",
            in_duration(1000 * sum(p.seconds.values())),
            p.cause if p.error is None else f"nothing was changed: {p.error}",
        )
        for p in found
    ]
    columns = ["pass", "partition", "started", "new offsets", "records", "size", "took", "why"]
    show_table(columns, rows)


def _text(key: bytes | None) -> str:
    return "null" if key is None else key.decode(errors="backslashreplace")
