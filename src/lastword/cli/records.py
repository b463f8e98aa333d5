"""lastword produce|consume"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Annotated

import typer

from lastword.cli.lines import (
    Format,
    LineFormat,
    Lines,
    NullMarker,
    Separator,
    ShowOffsets,
    from_json,
    from_text,
)
from lastword.cli.options import StoreUrl, TopicName, opened
from lastword.cli.render import errors
from lastword.consumer import Consumer
from lastword.errors import FlushError, InvalidRecordError, LastwordError
from lastword.model import Record
from lastword.producer import Producer
from lastword.topic import Topic

_POLL_SECONDS = 0.2


def produce(
    topic: TopicName,
    line_format: LineFormat = Format.TEXT,
    separator: Separator = r"\t",
    null_marker: Annotated[
        str | None,
        typer.Option(show_default=False, help="A value that is this text is null: a tombstone."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(show_default=False, help="For all records; else by their keys.")
    ] = None,
    store: StoreUrl = None,
) -> None:
    """Append records from standard input, one a line.

    In JSON: {"key": …, "value": …, "timestamp": ms, "headers": {…}, "partition": n}; only the key
    and the value are needed, and a null value is a tombstone. Bytes that are not text are
    {"base64": "…"}; any other object or list is kept as its JSON text.
    """
    parse = from_json if line_format is Format.JSON else from_text(separator, null_marker)
    with opened(store) as opened_store:
        opened_store.topic(topic)  # says so if there is none, before anything is read
        producer = opened_store.producer()
        try:
            for number, line in enumerate(sys.stdin.buffer, start=1):
                _send(producer, topic, number, partial(parse, line), partition)
            producer.close()
        except FlushError as error:
            if not producer.appended and isinstance(error.cause, LastwordError):
                raise error.cause from error
            raise LastwordError(
                f"the first {producer.appended} record(s) are appended, the rest is not: {error.cause}"
            ) from error
        except KeyboardInterrupt:
            producer.close()
            errors.print(f"interrupted; the first {producer.appended} record(s) are appended")
            raise
    errors.print(
        f"{producer.appended} record(s) appended to {topic}", highlight=False, markup=False
    )


def _send(
    producer: Producer,
    topic: str,
    number: int,
    parse: Callable[[], Record],
    partition: int | None,
) -> None:
    """Send one line; one that is refused ends it, with all before it appended."""
    try:
        record = parse()
        producer.send(
            topic,
            record.key,
            record.value,
            timestamp=record.timestamp,  # type: ignore[arg-type]
            headers=record.headers,
            partition=partition if record.partition is None else record.partition,
        )
    except (ValueError, TypeError, RecursionError, InvalidRecordError) as error:
        producer.close()
        raise InvalidRecordError(
            f"line {number} is refused, the {number - 1} record(s) before it are appended: {error}"
        ) from None


def consume(
    topic: TopicName,
    partition: Annotated[
        int | None, typer.Option(show_default=False, help="Only this one; else all.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option(show_default=False, help="Start here; needs --partition.")
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="With --follow: first what is there already.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with new records until interrupted.")
    ] = False,
    max_messages: Annotated[
        int | None,
        typer.Option(min=0, max=sys.maxsize, show_default=False, help="Stop after so many."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            show_default=False,
            help="As a member of this consumer group: from what it has committed, and commit.",
        ),
    ] = None,
    line_format: LineFormat = Format.TEXT,
    separator: Separator = r"\t",
    null_marker: NullMarker = "null",
    show_offsets: ShowOffsets = False,
    store: StoreUrl = None,
) -> None:
    """Print records, one a line: all that are there, or with --follow the new ones."""
    lines = Lines(line_format, separator, null_marker, show_offsets)
    if offset is not None and partition is None:
        raise typer.BadParameter("an offset counts within a partition: give --partition too")
    if offset is not None and from_beginning:
        raise typer.BadParameter("--offset and --from-beginning: give one of them")
    if group is not None and (partition, offset) != (None, None):
        raise typer.BadParameter("a group shares out partitions itself: leave --partition out")
    with opened(store) as opened_store:
        found = opened_store.topic(topic)
        if group is not None:
            reset = "latest" if follow and not from_beginning else "earliest"
            with opened_store.consumer(group, [topic], auto_offset_reset=reset) as consumer:
                _print_polled(consumer, lines, max_messages, follow=follow)
            return
        positions = _positions(found, partition, offset, at_end=follow and not from_beginning)
        records = _records(found, positions, is_all=partition is None, follow=follow)
        for record in islice(records, max_messages):
            sys.stdout.buffer.write(lines.line(record))
            if follow:
                sys.stdout.buffer.flush()


def _print_polled(
    consumer: Consumer, lines: Lines, max_messages: int | None, *, follow: bool
) -> None:
    """Print what a group's member gets; what was printed is committed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the group is left
    left = sys.maxsize if max_messages is None else max_messages
    while left:
        polled = consumer.poll(min(left, 500), timeout_ms=200 if follow else 0)
        if not polled and not follow:
            return
        for record in polled:
            sys.stdout.buffer.write(lines.line(record))
        sys.stdout.buffer.flush()
        consumer.commit()
        left -= len(polled)


def _positions(
    topic: Topic, partition: int | None, offset: int | None, *, at_end: bool
) -> dict[int, int]:
    """Where to start, per partition."""
    bounds = topic.offsets()
    numbers = bounds.keys() if partition is None else [partition]
    starts = {}
    for number in numbers:
        topic.read(number, offset)  # says so if there is no such partition or offset
        log_start, log_end = bounds[number]
        starts[number] = offset if offset is not None else log_end if at_end else log_start
    return starts


def _records(
    topic: Topic, positions: dict[int, int], *, is_all: bool, follow: bool
) -> Iterator[Record]:
    """The records from these positions on; partitions added meanwhile too, if all are asked for."""
    while True:
        for number, (log_start, log_end) in topic.offsets().items():
            if number in positions or is_all:
                yield from topic.read(number, positions.get(number, log_start), log_end)
                positions[number] = log_end
        if not follow:
            return
        time.sleep(_POLL_SECONDS)
