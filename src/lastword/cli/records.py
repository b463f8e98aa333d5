"""lastword produce|consume"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Annotated, Any

import typer

from lastword.cli.options import StoreUrl, opened
from lastword.cli.render import errors
from lastword.errors import FlushError, InvalidRecordError, LastwordError
from lastword.model import Record
from lastword.producer import Producer
from lastword.topic import Topic

_POLL_SECONDS = 0.2


class Format(StrEnum):
    """How a record stands on a line."""

    TEXT = "text"
    JSON = "json"


LineFormat = Annotated[
    Format, typer.Option("--format", help="text: KEY<separator>VALUE; json: one object a line.")
]
Separator = Annotated[
    str, typer.Option(help=r"Between key and value, in text; \t is the tabulator.")
]


def produce(
    topic: Annotated[str, typer.Argument(help="The topic.")],
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
    parse = _from_json if line_format is Format.JSON else _from_text(separator, null_marker)
    with opened(store) as opened_store:
        opened_store.topic(topic)  # says so if there is none, before anything is read
        producer = opened_store.producer()
        try:
            for number, line in enumerate(sys.stdin.buffer, start=1):
                _send(producer, topic, number, partial(parse, line), partition)
            producer.close()
        except FlushError as error:
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
    topic: Annotated[str, typer.Argument(help="The topic.")],
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
    line_format: LineFormat = Format.TEXT,
    separator: Separator = r"\t",
    null_marker: Annotated[str, typer.Option(help="How a null shows, in text.")] = "null",
    show_offsets: Annotated[
        bool, typer.Option("--show-offsets", help="In text: PARTITION:OFFSET<separator> first.")
    ] = False,
    store: StoreUrl = None,
) -> None:
    """Print records, one a line: all that are there, or with --follow the new ones."""
    if offset is not None and partition is None:
        raise typer.BadParameter("an offset counts within a partition: give --partition too")
    if offset is not None and from_beginning:
        raise typer.BadParameter("--offset and --from-beginning: give one of them")
    with opened(store) as opened_store:
        found = opened_store.topic(topic)
        positions = _positions(found, partition, offset, at_end=follow and not from_beginning)
        lines = _records(found, positions, is_all=partition is None, follow=follow)
        for record in islice(lines, max_messages):
            if line_format is Format.JSON:
                line = json.dumps(_to_json(record), ensure_ascii=False).encode()
            else:
                line = _to_text(
                    record, _unescaped(separator), os.fsencode(null_marker), show_offsets
                )
            sys.stdout.buffer.write(line + b"\n")
            if follow:
                sys.stdout.buffer.flush()


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


def _from_text(separator: str, null_marker: str | None) -> Callable[[bytes], Record]:
    """A parser of KEY<separator>VALUE."""
    between = _unescaped(separator)
    null = None if null_marker is None else os.fsencode(null_marker)

    def parse(line: bytes) -> Record:
        key, found, value = _without_end(line).partition(between)
        if not found:
            raise ValueError(f"no separator {os.fsdecode(between)!r} between key and value")
        return Record(key, None if value == null else value)

    return parse


def _unescaped(separator: str) -> bytes:
    return os.fsencode(separator.replace(r"\t", "\t"))


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _from_json(line: bytes) -> Record:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON ({error})") from None
    if not isinstance(fields, dict) or "value" not in fields:
        raise ValueError('give an object with "key" and "value"')
    known = {"key", "value", "timestamp", "headers", "partition", "offset"}
    if unknown := fields.keys() - known:
        raise ValueError(f"unknown field {sorted(unknown)[0]!r}")
    headers = fields.get("headers") or {}
    is_list = isinstance(headers, list) and all(
        isinstance(pair, list) and len(pair) == 2 for pair in headers
    )
    if not is_list and not isinstance(headers, dict):
        raise ValueError("headers are an object, or a list of [name, value]")
    pairs = headers.items() if isinstance(headers, dict) else [tuple(h) for h in headers]
    return Record(
        key=_in_bytes(fields.get("key")),
        value=_in_bytes(fields["value"]),
        timestamp=fields.get("timestamp"),
        headers=tuple((name, _in_bytes(value)) for name, value in pairs),
        partition=None if "offset" in fields else fields.get("partition"),
    )


def _in_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return base64.b64decode(value["base64"], validate=True)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _to_json(record: Record) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _in_text(record.key),
        "value": _in_text(record.value),
    }
    if record.headers:
        shown["headers"] = [[name, _in_text(value)] for name, value in record.headers]
    return shown


def _in_text(value: bytes | str | None) -> str | dict[str, str] | None:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _to_text(record: Record, separator: bytes, null_marker: bytes, show_offsets: bool) -> bytes:
    cells = [null_marker if cell is None else cell for cell in (record.key, record.value)]
    place = [f"{record.partition}:{record.offset}".encode()] if show_offsets else []
    return separator.join([*place, *cells])  # type: ignore[list-item]
