"""Keys and values as they are shown: text, JSON or hex; hostile ones made harmless to the eye.

(That they are harmless to the browser is the templates' escaping and the page's policy.)
"""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlencode

MOST_CHARS = 600  # of a value in a list
_HEX_LINE = 76  # characters, for 16 bytes
_MOST_JSON = (
    1 << 16
)  # bytes; what is larger is shown as text, but for a record on a page of its own
# Control characters, those that have no width or no ink, and those that turn the direction of text around.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


class As(StrEnum):
    """How bytes are shown."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"


@dataclass(frozen=True)
class Shown:
    """Bytes for people. Of what `is_cut`, `text` has only the beginning."""

    kind: str  # null, empty, text, json or hex
    text: str
    bytes: int
    is_cut: bool = False


def shown(value: bytes | None, how: As = As.AUTO, most: int = MOST_CHARS) -> Shown:
    """The bytes as asked, as far as they can be; in `auto`, as what they look like."""
    if value is None:
        return Shown("null", "null", 0)
    if not value:
        return Shown("empty", "", 0)
    if how in (As.AUTO, As.JSON) and (pretty := _json(value, most)) is not None:
        return _cut("json", pretty, value, most)
    if how is not As.HEX and (text := _text(value, most, is_sure=how is As.TEXT)) is not None:
        return _cut("text", text, value, most)
    lines = most // _HEX_LINE + 1
    return _cut("hex", _hex(value[: 16 * lines]), value, most, is_cut=len(value) > 16 * lines)


def spelled(text: str) -> str:
    """The text, with what cannot be seen spelled out."""
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def key_query(key: bytes) -> str:
    """A key as it stands in an address: as text if it can be typed, else in hex."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = "\0"
    is_plain = spelled(text) == text and (text.isprintable() or not text)
    return urlencode({"key": text} if is_plain else {"key": key.hex(), "keyas": "hex"})


def one_line(value: bytes | None, most: int = 80) -> str:
    """A key in a list."""
    found = shown(value, As.TEXT, most)
    return found.text.replace("\n", "\\n") + ("…" if found.is_cut else "")


def _cut(kind: str, text: str, value: bytes, most: int, *, is_cut: bool = False) -> Shown:
    if kind != "hex" and len(text) > most:
        text, is_cut = text[:most], True
    return Shown(kind, spelled(text), len(value), is_cut)


def _json(value: bytes, most: int) -> str | None:
    """The JSON on lines of its own; None if it is none, is large or deep, or a mere word or number."""
    if len(value) > max(_MOST_JSON, most) or value.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        text = value.decode()
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _indented(text, most)


def _indented(text: str, most: int) -> str:
    """JSON as it was written, number for number, on lines of its own: a bit more than is shown of it."""
    parts: list[str] = []
    depth, last, chars = 0, "", 0
    for match in _TOKEN.finditer(text):
        if chars > most:
            break
        token = match[0]
        depth -= token in "}]"
        is_empty = token in "}]" and last in ("{", "[")
        is_new_line = token in "}]" or last in ("{", "[", ",")
        before = "\n" + "  " * depth if is_new_line and not is_empty else ""
        depth += token in "{["
        parts += [before, ": " if token == ":" else token]
        chars += len(parts[-2]) + len(parts[-1])
        last = token
    return "".join(parts)


def _text(value: bytes, most: int, *, is_sure: bool) -> str | None:
    """The beginning as text, a bit more than what is shown of it; None if it is none."""
    beginning = value[: 4 * most + 4]  # no character has more than four bytes
    if is_sure:
        return beginning.decode(errors="backslashreplace")
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(beginning, final=len(beginning) == len(value))
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text


def _hex(value: bytes) -> str:
    lines = []
    for start in range(0, len(value), 16):
        row = value[start : start + 16]
        text = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        lines.append(f"{start:08x}  {row.hex(' '):<47}  {text}")
    return "\n".join(lines)
