"""The pages of records: a partition from an offset, the latest view, a key's history, one record."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from pydantic import BeforeValidator
from starlette.responses import HTMLResponse, Response

from lastword.errors import OffsetOutOfRangeError, UnknownTopicError
from lastword.model import Record
from lastword.topic import Topic
from lastword.ui.parts import ATopic, Offset, PartitionNumber, record_at
from lastword.ui.render import rendered
from lastword.ui.values import As

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_RECORDS_A_PAGE = 50
_MOST_VERSIONS = 200
_MOST_SHOWN = 1 << 20  # characters of one record, on a page of its own


@dataclass(frozen=True)
class Wanted:
    """Which records a visitor asks for."""

    view: str = "log"
    partition: int = 0
    start: int | None = None
    key: str = ""
    how: As = As.AUTO

    def link(self, **changes: object) -> str:
        now = replace(self, **changes)  # type: ignore[arg-type]
        asked = {"view": now.view, "partition": now.partition, "from": now.start, "key": now.key, "as": now.how}  # fmt: skip
        return "?" + urlencode({k: v for k, v in asked.items() if v not in (None, "")})


@router.get("/topics/{topic}/records")
def records_page(
    request: Request,
    topic: ATopic,
    view: str = "log",
    partition: PartitionNumber = 0,
    start: Annotated[
        Offset | None, BeforeValidator(lambda v: v or None), Query(alias="from")
    ] = None,
    key: Annotated[str, Query(max_length=10_000)] = "",
    how: Annotated[As, Query(alias="as")] = As.AUTO,
) -> Response:
    """Records: a partition from an offset, the latest view, or a key and its history."""
    bounds = topic.offsets()
    wanted = Wanted(view, partition, start, key, how)
    problem, found, history = "", [], None
    try:
        if view == "key":
            history = topic.history(_as_key(key)) if key else None
            found = list(history or ())
        else:
            found = _page_of(topic, wanted, bounds)
    except OffsetOutOfRangeError as error:
        problem = str(error)
    more = len(found) > _RECORDS_A_PAGE and view != "key"
    return rendered(
        request,
        "records.html",
        topic=topic,
        bounds=bounds,
        wanted=wanted,
        hows=list(As),
        records=found[: _MOST_VERSIONS if view == "key" else _RECORDS_A_PAGE],
        history=history,
        next_offset=found[_RECORDS_A_PAGE].offset if more else None,
        problem=problem,
    )


@router.get("/topics/{topic}/records/{partition}/{offset}")
def record_page(
    request: Request,
    topic: ATopic,
    partition: PartitionNumber,
    offset: Offset,
    how: Annotated[As, Query(alias="as")] = As.AUTO,
) -> Response:
    """One record, whole."""
    return rendered(
        request,
        "record.html",
        topic=topic,
        record=record_at(topic, partition, offset),
        how=how,
        hows=list(As),
        most=_MOST_SHOWN,
    )


def _page_of(topic: Topic, wanted: Wanted, bounds: dict[int, tuple[int, int]]) -> list[Record]:
    """A page of records, and one more if there is one."""
    if wanted.partition not in bounds:
        raise UnknownTopicError(topic.name, wanted.partition)
    if wanted.view != "latest":
        return list(topic.read(wanted.partition, wanted.start, limit=_RECORDS_A_PAGE + 1))
    found: list[Record] = []
    for record in topic.latest(wanted.partition):
        if (record.offset or 0) >= (wanted.start or 0):
            found.append(record)
        if len(found) > _RECORDS_A_PAGE:
            break
    return found


def _as_key(text: str) -> bytes:
    """A key as it is typed: text, or hex after 0x."""
    if text.startswith("0x"):
        with suppress(ValueError):
            return bytes.fromhex(text[2:])
    return text.encode()
