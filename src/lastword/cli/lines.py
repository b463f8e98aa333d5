"""How a record stands on a line: as text, KEY<separator>VALUE, or as one JSON object."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from lastword.model import Record


class Format(StrEnum):
    """How a record stands on a line."""

    TEXT = "text"
    JSON = "json"


LineFormat = Annotated[
    Format, typer.Option("--format", help="text: key, separator, value; json: one object a line.")
]
Separator = Annotated[
    str, typer.Option(help=r"Between key and value, in text; \t is the tabulator.")
]
NullMarker = Annotated[str, typer.Option(help="How a null shows, in text.")]
ShowOffsets = Annotated[
    bool, typer.Option("--show-offsets", help="In text: PARTITION:OFFSET first, and a separator.")
]


@dataclass(frozen=True)
class Lines:
    """Records as lines."""

    format: Format = Format.TEXT
    separator: str = r"\t"
    null_marker: str = "null"
    show_offsets: bool = False
    only_keys: bool = False

    def line(self, record: Record) -> bytes:
        """The record on its line, the line's end included."""
        if self.format is Format.JSON:
            shown = _to_json(record)
            if self.only_keys:
                del shown["value"]
            return json.dumps(shown, ensure_ascii=False).encode() + b"\n"
        null = os.fsencode(self.null_marker)
        cells = [record.key] if self.only_keys else [record.key, record.value]
        place = [f"{record.partition}:{record.offset}".encode()] if self.show_offsets else []
        shown_cells = [null if cell is None else cell for cell in cells]
        return _unescaped(self.separator).join([*place, *shown_cells]) + b"\n"  # type: ignore[list-item]


def from_text(separator: str, null_marker: str | None) -> Callable[[bytes], Record]:
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


def from_json(line: bytes) -> Record:
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
        "key": in_text(record.key),
        "value": in_text(record.value),
    }
    if record.headers:
        shown["headers"] = [[name, in_text(value)] for name, value in record.headers]
    return shown


def in_text(value: bytes | str | None) -> str | dict[str, str] | None:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
