"""The pages of records: a partition from an offset, the latest view, a key's history, one record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import HTMLResponse, Response

from lastword.catalog import queries
from lastword.config import LONG_MAX
from lastword.errors import (
    BrokenFileError,
    InvalidArgumentError,
    LastwordError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from lastword.log.lookup import History
from lastword.model import Record
from lastword.topic import Topic
from lastword.ui.parts import ARecord, ATopic, Offset, PartitionNumber, Parts, Ui
from lastword.ui.render import rendered
from lastword.ui.values import As, Shown, shown

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_RECORDS_A_PAGE = 50
_MOST_VERSIONS = 200
_MOST_SHOWN = 1 << 20  # characters of one record, on a page of its own
_NEWEST = "newest"


class KeyAs(StrEnum):
    """How a key is typed in."""

    TEXT = "text"
    HEX = "hex"


@dataclass(frozen=True)
class Wanted:
    """Which records a visitor asks for."""

    view: str = "log"
    partition: int = 0
    since: str = ""  # as typed: an offset, a time, or "newest"
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
            "from": now.start if now.start is not None else now.since or None,
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
    since: Annotated[str, Query(alias="from", max_length=50)] = "",
    end: Offset | None = None,
    key: Annotated[str | None, Query(max_length=10_000)] = None,
    key_as: Annotated[KeyAs, Query(alias="keyas")] = KeyAs.TEXT,
    how: Annotated[As, Query(alias="as")] = As.AUTO,
) -> Wanted:
    return Wanted(view, partition, since.strip(), None, end, key, key_as, how)


@router.get("/topics/{topic}/records")
def records_page(
    request: Request, ui: Ui, topic: ATopic, wanted: Annotated[Wanted, Depends(_wanted)]
) -> Response:
    """Records: a partition from an offset, the latest view, or a key and its history."""
    bounds = topic.offsets()
    page, history = _Page(), None
    try:
        if wanted.view == "key":
            history = _history(ui, topic, wanted)
            page = _Page([_row(record, wanted.how) for record in history or ()])
        else:
            wanted = replace(wanted, start=_start(ui, topic, wanted, bounds))
            page = _page_of(ui, topic, wanted, bounds)
    except (OffsetOutOfRangeError, InvalidArgumentError, BrokenFileError) as error:
        page = _Page(problem=error)
    return rendered(
        request,
        "records.html",
        503 if isinstance(page.problem, BrokenFileError) else 200,
        topic=topic,
        bounds=bounds,
        wanted=wanted,
        hows=list(As),
        keys_as=list(KeyAs),
        records=page.rows[: _MOST_VERSIONS if wanted.view == "key" else _RECORDS_A_PAGE],
        history=history,
        page=page,
        newest=_NEWEST,
    )


@router.get("/topics/{topic}/records/{partition}/{offset}")
def record_page(
    request: Request,
    ui: Ui,
    topic: ATopic,
    record: ARecord,
    how: Annotated[As, Query(alias="as")] = As.AUTO,
    last: bool = False,
) -> Response:
    """One record, whole; with `last`, its key is looked up to see if that is the last word on it."""
    return rendered(
        request,
        "record.html",
        topic=topic,
        record=record,
        is_asked=last,
        last=_last_of_its_key(ui, topic, record) if last else None,
        how=how,
        hows=list(As),
        most=_MOST_SHOWN,
    )


@dataclass(frozen=True)
class _Page:
    """Some records, and one more if there is one."""

    rows: Sequence[Row] = ()
    before: int | None = None  # where the page before begins, if that is known
    after: int | None = None  # where the next one begins
    end: int | None = None  # log end, as of which the latest view is shown
    problem: LastwordError | None = None


def _start(
    ui: Parts, topic: Topic, wanted: Wanted, bounds: dict[int, tuple[int, int]]
) -> int | None:
    """Where to begin: at an offset, or with the first record that is as young as a time."""
    since, number = wanted.since, wanted.partition
    if number not in bounds:
        raise UnknownTopicError(topic.name, number)
    log_start, log_end = bounds[number]
    if since == _NEWEST:
        return _page_before(ui, topic, number, log_start, log_end)
    if not since or since.isdecimal():
        return min(int(since), LONG_MAX) if since else None
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        raise InvalidArgumentError(
            f"{since!r} is neither an offset nor a time, such as 2026-11-19 06:30 (UTC)"
        ) from None
    since_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    found = topic.offset_for_timestamp(number, since_ms)
    return log_end if found is None else found


def _page_of(ui: Parts, topic: Topic, wanted: Wanted, bounds: dict[int, tuple[int, int]]) -> _Page:
    """A page of the log, or of the latest view."""
    number, start = wanted.partition, wanted.start
    if wanted.view == "latest":
        size = _RECORDS_A_PAGE + 1
        found, end = ui.latest_views.page(topic.row, number, start or 0, size, wanted.end)
        rows = [_row(record, wanted.how) for record in found]
        return _Page(rows, after=_offset_after(rows), end=end)
    log_start, log_end = bounds[number]
    start = log_start if start is None else start
    before, rows = _page_before(ui, topic, number, log_start, start), []
    try:
        for record in topic.read(number, wanted.start, limit=_RECORDS_A_PAGE + 1):
            rows.append(_row(record, wanted.how))
    except BrokenFileError as error:  # what came before it is there, and so is what comes after it
        here = (rows[-1].record.offset or 0) + 1 if rows else start
        _, files = queries.read_plan(ui.store.base.catalog, topic.row, number, (here, log_end), 1)
        after = next((f.last_offset + 1 for f in files if f.last_offset + 1 < log_end), None)
        return _Page(rows, before, after, problem=error)
    return _Page(rows, before, _offset_after(rows))


def _offset_after(rows: Sequence[Row]) -> int | None:
    """Of the one record that is read beyond a page."""
    return rows[_RECORDS_A_PAGE].record.offset if len(rows) > _RECORDS_A_PAGE else None


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


def _page_before(ui: Parts, topic: Topic, number: int, first: int, start: int) -> int | None:
    """Where the page before this one begins. Offsets have gaps, so it is the files that tell."""
    files = queries.files_before(
        ui.store.base.catalog, topic.row, number, start, _RECORDS_A_PAGE + 1
    )
    begin, records = start, 0
    for file in files:
        begin = max(first, file.base_offset)
        if file.last_offset < start:
            records += file.facts.records
        elif file.is_dense:
            records += start - file.base_offset
        if records >= _RECORDS_A_PAGE:
            break
    if begin >= start:
        return None
    try:
        offsets = topic.read(number, begin, start, columns=["offset"]).to_arrow()["offset"]
    except BrokenFileError:
        return begin
    return int(offsets[-_RECORDS_A_PAGE:][0].as_py()) if len(offsets) else None


def _last_of_its_key(ui: Parts, topic: Topic, record: Record) -> Record | None:
    """The record that counts for that key now."""
    if record.key is None:
        return None
    with ui.scans.one():
        return next(iter(topic.history(record.key, 1)), None)
