"""The pages of records: a partition from an offset, the latest view, a key's history, one record."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BeforeValidator
from starlette.responses import HTMLResponse, Response

from lastword.errors import (
    BrokenFileError,
    InvalidArgumentError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from lastword.log.lookup import History
from lastword.model import Record
from lastword.topic import Topic
from lastword.ui.parts import ARecord, ATopic, Offset, PartitionNumber, Parts, Ui
from lastword.ui.render import rendered
from lastword.ui.scans import Busy
from lastword.ui.values import As, Shown, shown

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_RECORDS_A_PAGE = 50
_MOST_VERSIONS = 200
_MOST_SHOWN = 1 << 20  # characters of one record, on a page of its own


class KeyAs(StrEnum):
    """How a key is typed in."""

    TEXT = "text"
    HEX = "hex"


@dataclass(frozen=True)
class Wanted:
    """Which records a visitor asks for."""

    view: str = "log"
    partition: int = 0
    start: int | None = None
    end: int | None = None  # log end, as of which the latest view was begun
    key: str | None = None
    key_as: KeyAs = KeyAs.TEXT
    how: As = As.AUTO

    def link(self, **changes: object) -> str:
        now = replace(self, **changes)  # type: ignore[arg-type]
        asked = {
            "view": now.view,
            "partition": now.partition,
            "from": now.start,
            "end": now.end,
            "key": now.key,
            "keyas": now.key_as,
            "as": now.how,
        }
        return "?" + urlencode({k: v for k, v in asked.items() if v is not None})

    @property
    def key_bytes(self) -> bytes | None:
        """The key that is asked for, if one is."""
        if self.key is None or self.key_as is KeyAs.TEXT:
            return self.key.encode() if self.key is not None else None
        try:
            return bytes.fromhex(self.key.removeprefix("0x"))
        except ValueError:
            raise InvalidArgumentError(
                f"{self.key!r:.80} is not hex: two of 0-9 and a-f for each byte"
            ) from None


@dataclass(frozen=True)
class Row:
    """A record in a list, with what is shown of its value; the value itself may be large."""

    record: Record
    value: Shown


def _wanted(
    view: str = "log",
    partition: PartitionNumber = 0,
    start: Annotated[
        Offset | None, BeforeValidator(lambda v: v or None), Query(alias="from")
    ] = None,
    end: Offset | None = None,
    key: Annotated[str | None, Query(max_length=10_000)] = None,
    key_as: Annotated[KeyAs, Query(alias="keyas")] = KeyAs.TEXT,
    how: Annotated[As, Query(alias="as")] = As.AUTO,
) -> Wanted:
    return Wanted(view, partition, start, end, key, key_as, how)


@router.get("/topics/{topic}/records")
def records_page(
    request: Request, ui: Ui, topic: ATopic, wanted: Annotated[Wanted, Depends(_wanted)]
) -> Response:
    """Records: a partition from an offset, the latest view, or a key and its history."""
    bounds = topic.offsets()
    problem, page, history = "", _Page(), None
    try:
        if wanted.view == "key":
            history = _history(ui, topic, wanted)
            page = _Page([_row(record, wanted.how) for record in history or ()])
        else:
            page = _page_of(ui, topic, wanted, bounds)
    except (OffsetOutOfRangeError, InvalidArgumentError) as error:
        problem = str(error)
    more = len(page.rows) > _RECORDS_A_PAGE and wanted.view != "key"
    return rendered(
        request,
        "records.html",
        topic=topic,
        bounds=bounds,
        wanted=wanted,
        hows=list(As),
        keys_as=list(KeyAs),
        records=page.rows[: _MOST_VERSIONS if wanted.view == "key" else _RECORDS_A_PAGE],
        history=history,
        page=page,
        next_offset=page.rows[_RECORDS_A_PAGE].record.offset if more else None,
        problem=problem,
    )


@router.get("/topics/{topic}/records/{partition}/{offset}")
def record_page(
    request: Request,
    ui: Ui,
    topic: ATopic,
    record: ARecord,
    how: Annotated[As, Query(alias="as")] = As.AUTO,
) -> Response:
    """One record, whole."""
    return rendered(
        request,
        "record.html",
        topic=topic,
        record=record,
        last=_last_of_its_key(ui, topic, record),
        how=how,
        hows=list(As),
        most=_MOST_SHOWN,
    )


@dataclass(frozen=True)
class _Page:
    """Some records, and one more if there is one."""

    rows: Sequence[Row] = ()
    before: int | None = None  # where the page before begins, if that is known
    end: int | None = None  # log end, as of which the latest view is shown


def _page_of(ui: Parts, topic: Topic, wanted: Wanted, bounds: dict[int, tuple[int, int]]) -> _Page:
    """A page of the log, or of the latest view."""
    number, start = wanted.partition, wanted.start or 0
    if number not in bounds:
        raise UnknownTopicError(topic.name, number)
    if wanted.view == "latest":
        found, end = ui.latest_views.page(topic.row, number, start, _RECORDS_A_PAGE + 1, wanted.end)
        return _Page([_row(record, wanted.how) for record in found], end=end)
    read = topic.read(number, wanted.start, limit=_RECORDS_A_PAGE + 1)
    rows = [_row(record, wanted.how) for record in read]
    return _Page(rows, _page_before(topic, number, bounds[number][0], start))


def _history(ui: Parts, topic: Topic, wanted: Wanted) -> History | None:
    """What is left of a key that was asked for; one more than is shown, if there is one."""
    if (key := wanted.key_bytes) is None:
        return None
    with ui.scans.one():
        return topic.history(key, _MOST_VERSIONS + 1)


def _row(record: Record, how: As) -> Row:
    value = record.value
    assert not isinstance(value, str)  # records that were read have bytes
    return Row(record._replace(value=None), shown(value, how))


def _page_before(topic: Topic, partition: int, first: int, start: int) -> int | None:
    """Where the page before this one begins. Offsets have gaps, so it is looked for ever further back."""
    span = _RECORDS_A_PAGE
    while start > first:
        begin = max(first, start - span)
        offsets = topic.read(partition, begin, start, columns=["offset"]).to_arrow()["offset"]
        if len(offsets) >= _RECORDS_A_PAGE or begin == first:
            return int(offsets[-_RECORDS_A_PAGE:][0].as_py()) if len(offsets) else None
        span *= 2
    return None


def _last_of_its_key(ui: Parts, topic: Topic, record: Record) -> Record | None:
    """The record that counts for that key now; None if it has no key, or that is not known now."""
    if record.key is None:
        return None
    with suppress(BrokenFileError, Busy), ui.scans.one():
        return next(iter(topic.history(record.key, 1)), None)
    return None
