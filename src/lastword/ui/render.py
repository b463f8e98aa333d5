"""Pages from templates. Everything in them is escaped: keys and values are hostile text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Generic, TypeVar

from fastapi import Query, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from lastword import __version__
from lastword.ui.values import key_query, one_line, shown, spelled
from lastword.words import (
    counted,
    in_bytes,
    in_duration,
    in_time,
    removed_in_words,
    setting_in_words,
)

HERE = Path(__file__).parent

_environment = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters |= {
    "in_bytes": in_bytes,
    "in_time": in_time,
    "in_duration": in_duration,
    "setting_in_words": setting_in_words,
    "shown": shown,
    "key_query": key_query,
    "one_line": one_line,
    "spelled": spelled,
    "counted": counted,
    "removed_in_words": removed_in_words,
    "number": lambda value: f"{value:,}",
    "percent": lambda ratio: f"{100 * ratio:.0f} %",
    "x": lambda position: Markup(f"{position:.3f}%"),  # of which a picture has thousands
}


PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]
T = TypeVar("T")


@dataclass(frozen=True)
class Paged(Generic[T]):
    """Some of many."""

    items: Sequence[T]
    page: int
    pages: int


def paged(items: Sequence[T], page: int, size: int) -> Paged[T]:
    """Those on a page; on the last one if there are not so many."""
    pages = max(1, -(-len(items) // size))
    page = min(page, pages)
    return Paged(items[size * (page - 1) : size * page], page, pages)


def rendered(request: Request, name: str, status: int = 200, **values: object) -> HTMLResponse:
    """The page of that template."""
    common = {"path": request.url.path, "version": __version__, "parts": request.app.state.parts}
    text = _environment.get_template(name).render(**common, status=status, **values)
    return HTMLResponse(text, status)
