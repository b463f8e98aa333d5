"""The pages, as HTML: all that there is to see. They work without scripts, and refresh with them.

This is all but those of a topic and of its records, which have modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from lastword.cleaner.metrics import as_prometheus
from lastword.cleaner.overview import TopicOverview
from lastword.config import LONG_MAX
from lastword.ui.counts import Counts
from lastword.ui.known import account_of
from lastword.ui.parts import Ui
from lastword.ui.render import PageNumber, paged, rendered

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_TOPICS_A_PAGE = 100
_PASSES_SHOWN = 100


def _unwell(topic: TopicOverview) -> tuple[int, ...]:
    """The worse it stands with a topic, the larger."""
    return (
        topic.failed,
        topic.overdue_ms,
        len(topic.held_by),
        topic.eligible,
        topic.at_work,
        topic.paused_ms is not None,
    )


_COLUMNS: dict[str, tuple[str, Callable[[TopicOverview, Counts], Any]]] = {
    "name": ("topic", lambda t, _: t.name),
    "health": ("health", lambda t, _: _unwell(t)),
    "partitions": ("partitions", lambda t, _: t.partitions),
    "records": ("records", lambda t, _: t.records),
    "bytes": ("size", lambda t, _: t.bytes),
    "keys": ("live keys", lambda t, counts: counts.keys_told(t)),
    "dirty": ("dirty ratio", lambda t, _: t.dirty_ratio),
    "tombstones": ("tombstones", lambda t, _: t.tombstones),
    "pass": ("last pass", lambda t, _: t.last_pass_ms or 0),
}


@dataclass(frozen=True)
class Listing:
    """Which topics are listed, and how."""

    search: str = ""
    sort: str = "name"
    page: int = 1

    def link(self, **changes: object) -> str:
        now = replace(self, **changes)  # type: ignore[arg-type]
        return "?" + urlencode({"filter": now.search, "sort": now.sort, "page": now.page})

    def sorted_by(self, column: str) -> str:
        """The link that sorts by a column: names and those sorted down go up, others down."""
        is_up = self.sort == f"-{column}" or (column == "name" and self.sort != "name")
        return self.link(sort=column if is_up else f"-{column}", page=1)


@router.get("/")
def home(
    request: Request,
    ui: Ui,
    search: Annotated[str, Query(alias="filter", max_length=300)] = "",
    sort: str = "name",
    page: PageNumber = 1,
) -> Response:
    """All topics."""
    seen = ui.watch.seen()
    found = [t for t in seen.topics if search.lower() in t.name.lower()]
    column = sort.removeprefix("-")
    if column in _COLUMNS:
        key = _COLUMNS[column][1]
        found.sort(key=lambda t: key(t, ui.counts), reverse=sort.startswith("-"))
    shown = paged(found, page, _TOPICS_A_PAGE)
    return rendered(
        request,
        "overview.html",
        seen=seen,
        shown=shown,
        matching=len(found),
        columns={name: title for name, (title, _) in _COLUMNS.items()},
        counts=ui.counts,
        listing=Listing(search, sort, shown.page),
        unwell=[t for t in seen.topics if not t.is_well],
    )


@router.get("/new")
def new(request: Request) -> Response:
    """A form for a topic."""
    return rendered(request, "new.html")


@router.get("/passes")
def passes_page(request: Request, ui: Ui) -> Response:
    """The last passes over all topics."""
    return rendered(request, "passes.html", passes=ui.store.passes(limit=_PASSES_SHOWN))


@router.get("/passes/{pass_id}")
def pass_page(
    request: Request, ui: Ui, pass_id: Annotated[int, Path(ge=1, le=LONG_MAX)]
) -> Response:
    """A pass: what it read, wrote and removed, and why."""
    account = account_of(ui.store.base, pass_id)
    return rendered(request, "pass.html", done=account.done, files=account.files)


@router.get("/settings")
def settings_page(request: Request, ui: Ui) -> Response:
    """The store's own settings."""
    return rendered(request, "settings.html", settings=ui.store.settings(), url=ui.store.url)


@router.get("/scene")
def scene_page(request: Request) -> Response:
    """Compaction, explained by doing it."""
    return rendered(request, "scene.html")


@router.get("/metrics")
def metrics(ui: Ui) -> Response:
    """For Prometheus."""
    totals = ui.totals.count(ui.store.base.catalog)
    text = as_prometheus(ui.watch.fresh(), totals)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/favicon.ico")
def favicon() -> Response:
    return RedirectResponse("/static/icon.svg")
