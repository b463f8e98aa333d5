"""lastword latest|get|changes|erase"""

from __future__ import annotations

import json
import sys
import threading
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pyarrow.parquet as pq
import typer

from lastword.cli.lines import (
    Format,
    LineFormat,
    Lines,
    NullMarker,
    Separator,
    ShowOffsets,
    in_text,
)
from lastword.cli.live import interrupt_on_signals, job_progress
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
from lastword.cli.render import bytes_progress, errors, show_json, show_line
from lastword.erase import Receipt
from lastword.files.root import translated
from lastword.jobs.session import found_or_started
from lastword.jobs.spark import SparkRunner
from lastword.log.latest import LastRecords
from lastword.log.lookup import History
from lastword.topic import Topic
from lastword.words import in_bytes, in_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StateFormat(StrEnum):
    """How the current values are given out."""

    TEXT = "text"
    JSON = "json"
    PARQUET = "parquet"


def latest(
    topic: TopicName,
    partition: Partition = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="Only the keys; values are not read.")
    ] = False,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Deleted keys, and when their tombstones vanish.")
    ] = False,
    state_format: Annotated[
        StateFormat,
        typer.Option(
            "--format",
            help="text: key, separator, value; json: one object a line; parquet: a file, with --output.",
        ),
    ] = StateFormat.TEXT,
    output: Annotated[
        Path | None, typer.Option(show_default=False, help="Write to this file.")
    ] = None,
    separator: Separator = r"\t",
    show_offsets: ShowOffsets = False,
    store: StoreUrl = None,
) -> None:
    """Print the current value of every key: exact, whether or not the topic was ever cleaned."""
    is_parquet = state_format is StateFormat.PARQUET
    if is_parquet and output is None:
        raise typer.BadParameter("parquet goes into a file: give --output")
    if deleted and (keys or is_parquet or output is not None):
        raise typer.BadParameter("--deleted takes neither --keys nor --output nor parquet")
    line_format = Format.JSON if state_format is StateFormat.JSON else Format.TEXT
    lines = Lines(line_format, separator, show_offsets=show_offsets, only_keys=keys)
    with opened(store) as opened_store:
        found = opened_store.topic(topic)
        if deleted:
            _print_deleted(found, partition, line_format)
            return
        with bytes_progress("reading") as bar:
            columns = ["partition", "offset", "timestamp", "key"] if keys else None
            task = bar.add_task("latest", total=None)
            view = found.latest(
                partition, columns=columns, progress=lambda done: bar.advance(task, done)
            )
            bar.update(task, total=view.bytes)
            if is_parquet and output is not None:
                _write_parquet(view, output)
            elif output is not None:
                with translated(str(output)), output.open("wb") as file:
                    file.writelines(lines.line(record) for record in view)
            else:
                for record in view:
                    sys.stdout.buffer.write(lines.line(record))


def get(
    topic: TopicName,
    key: Annotated[str, typer.Argument(help="The key.")],
    history: Annotated[
        bool, typer.Option("--history", help="Every version that is still there, newest first.")
    ] = False,
    line_format: LineFormat = Format.TEXT,
    separator: Separator = r"\t",
    null_marker: NullMarker = "null",
    store: StoreUrl = None,
) -> None:
    """Print the value of a key. Exit code 1 if it has none."""
    lines = Lines(line_format, separator, null_marker, show_offsets=True)
    with opened(store) as opened_store:
        if history:
            _print_history(opened_store.topic(topic).history(key), lines)
            return
        record = opened_store.topic(topic).get(key)
    if line_format is Format.JSON:
        sys.stdout.buffer.write(lines.line(record))
    elif isinstance(record.value, bytes):
        sys.stdout.buffer.write(record.value + b"\n")
    if record.value is None:
        when = f"deleted at offset {record.offset}" if record.offset is not None else "not there"
        errors.print(f"{key!r} is {when}", markup=False, highlight=False)
        raise typer.Exit(1)


def changes(
    topic: TopicName,
    since: Annotated[
        list[str] | None,
        typer.Option(help="PARTITION:OFFSET; again for more. A partition left out: all of it."),
    ] = None,
    or_full: Annotated[
        bool,
        typer.Option("--or-full", help="The whole state, if deletions since may have been missed."),
    ] = False,
    line_format: LineFormat = Format.TEXT,
    separator: Separator = r"\t",
    null_marker: NullMarker = "null",
    show_offsets: ShowOffsets = False,
    store: StoreUrl = None,
) -> None:
    """Print the last record of every key that changed since; a null value if it was deleted.

    On standard error: what to give as --since the next time.
    """
    lines = Lines(line_format, separator, null_marker, show_offsets)
    with opened(store) as opened_store:
        delta = opened_store.topic(topic).changes(_positions(since or []), or_full=or_full)
        for record in delta:
            sys.stdout.buffer.write(lines.line(record))
    sys.stdout.buffer.flush()
    if delta.is_full:
        errors.print("this is the whole state: what is not in it is deleted")
    options = " ".join(f"--since {number}:{end}" for number, end in delta.end.items())
    errors.print(f"next time: {options}", highlight=False, soft_wrap=True)


def erase(
    topic: TopicName,
    keys: Annotated[
        list[str] | None, typer.Argument(show_default=False, help="The keys to erase.")
    ] = None,
    keys_from: Annotated[
        Path | None,
        typer.Option("--from", show_default=False, help="A file with a key on each line."),
    ] = None,
    dry_run: DryRun = False,
    master: SparkMaster = None,
    spark_conf: SparkConf = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Delete keys and the bytes of all their values, now, and print a receipt.

    Compacts their partitions whole, on Spark, min.compaction.lag.ms or not, and deletes the files
    that were replaced without waiting for readers.
    """
    wanted: list[str | bytes] = [*(keys or [])]
    if keys_from is not None:
        with translated(str(keys_from)):
            wanted += filter(None, keys_from.read_bytes().splitlines())
    if not wanted:
        raise typer.BadParameter("no key is named, neither here nor in a file with --from")
    with opened(store) as opened_store, job_progress() as progress:
        conf = pairs(spark_conf or [])

        def session() -> SparkSession:
            found = found_or_started(master, conf)
            interrupt_on_signals(runner, threading.Event())
            return found

        runner = SparkRunner(session, progress)
        try:
            receipt = opened_store.topic(topic).erase(wanted, dry_run=dry_run, runner=runner)
        except KeyboardInterrupt:
            errors.print(
                "interrupted: the keys may be deleted, but the bytes of their values are still there; "
                "run the same command again",
                soft_wrap=True,
            )
            raise
    if as_json:
        show_json(receipt)
    else:
        _show_receipt(receipt)


def _write_parquet(view: LastRecords, output: Path) -> None:
    with translated(str(output)), pq.ParquetWriter(output, view.schema) as writer:
        for batch in view.batches():
            writer.write_batch(batch)


def _print_deleted(topic: Topic, partition: int | None, line_format: Format) -> None:
    for found in topic.deleted(partition):
        if line_format is Format.JSON:
            print(json.dumps({**vars(found), "key": in_text(found.key)}, ensure_ascii=False))
            continue
        fate = (
            "not before the next pass and delete.retention.ms"
            if found.vanishes_ms is None
            else f"from {in_time(found.vanishes_ms)} on"
        )
        held = f", held by group {found.held_by!r}" if found.held_by else ""
        key = found.key.decode(errors="backslashreplace")
        print(f"{key}\tdeleted at {found.partition}:{found.offset}\tvanishes {fate}{held}")


def _print_history(history: History, lines: Lines) -> None:
    for record in history:
        sys.stdout.buffer.write(lines.line(record))
    sys.stdout.buffer.flush()
    done = history.removed_by
    if done is not None:
        when = in_time(done.started_ms)
        errors.print(
            f"what came before, if anything, was removed by pass {done.id} at {when}",
            highlight=False,
        )
    elif not len(history):
        errors.print("no version is there")
        raise typer.Exit(1)


def _positions(since: list[str]) -> dict[int, int]:
    found = {}
    for text in since:
        number, colon, offset = text.partition(":")
        if not colon or not number.isdecimal() or not offset.isdecimal():
            raise typer.BadParameter(f"{text!r} is not PARTITION:OFFSET")
        found[int(number)] = int(offset)
    return found


def _show_receipt(receipt: Receipt) -> None:
    is_dry = receipt.is_dry_run
    show_line(
        f"{'would erase' if is_dry else 'erased'} {receipt.found} of {receipt.keys} key(s) "
        f"of {receipt.topic}: {receipt.records} record(s), {receipt.tombstones} tombstone(s) "
        f"{'to append' if is_dry else 'appended'}"
    )
    show_line(f"files {'that hold them' if is_dry else 'rewritten'}: {receipt.files_rewritten}")
    if not is_dry:
        size = in_bytes(receipt.bytes_deleted)
        show_line(f"files deleted: {receipt.files_deleted}, {size}")
        show_line(f"passes: {', '.join(map(str, receipt.passes)) or 'none was needed'}")
        show_line(f"finished: {in_time(receipt.finished_ms)}")
    if receipt.not_found:
        show_line(f"not found: {', '.join(receipt.not_found)}")
    show_line("copies may remain in:")
    for place in receipt.may_remain:
        show_line(f"  {place}")
