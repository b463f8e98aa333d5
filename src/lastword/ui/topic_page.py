"""The page of a topic: its anatomy, why, growth, passes and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import HTMLResponse, Response

from lastword.catalog import queries
from lastword.cleaner.choose import Asked, decisions_about
from lastword.cleaner.overview import found_now
from lastword.cleaner.plan import Clean, Decision
from lastword.cleaner.why import why
from lastword.model import LogFile, Segment
from lastword.topic import Topic
from lastword.ui.anatomy import Picture, Scale, picture, section_of
from lastword.ui.counts import Survivors
from lastword.ui.known import growth_of, overview_of
from lastword.ui.parts import ATopic, Offset, PartitionNumber, Parts, Ui
from lastword.ui.render import PageNumber, paged, rendered

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_PARTITIONS_A_PAGE = 8
_PASSES_SHOWN = 12
_MOST_FILES = 200
_MOST_NOTABLE = 60


@dataclass(frozen=True)
class PartitionView:
    """A partition as its part of the page shows it."""

    decision: Decision
    picture: Picture
    sentences: tuple[str, ...]
    counted: Survivors | None
    chosen: Segment | None = None
    section: str = ""
    survivors: int | None = None
    files: Sequence[LogFile] = ()
    before: int | None = None  # the neighbours of the chosen one
    after: int | None = None


@dataclass(frozen=True)
class Notable:
    """The partitions of which there is something to say, and on which page each is."""

    what: str  # failed, overdue, due
    is_bad: bool
    partitions: Sequence[tuple[int, int]]  # number, page
    more: int


def notable(decisions: Sequence[Decision]) -> list[Notable]:
    """Which partitions have failed, are overdue, or would be cleaned now."""
    found: list[Notable] = []
    for what, is_bad, which in (
        ("failed", True, lambda d: d.state.row.failures > 0),
        ("overdue", True, lambda d: d.standing.delay_ms > 0),
        ("due", False, lambda d: isinstance(d, Clean)),
    ):
        numbers = [d.state.row.partition for d in decisions if which(d)]
        listed = [(n, n // _PARTITIONS_A_PAGE + 1) for n in numbers[:_MOST_NOTABLE]]
        if numbers:
            found.append(Notable(what, is_bad, listed, len(numbers) - len(listed)))
    return found


@dataclass(frozen=True)
class Look:
    """How a visitor looks at it: what is to scale, and which segment was clicked."""

    scale: Scale
    partition: int | None
    segment: int | None


def _look(
    scale: Scale = Scale.OFFSETS,
    partition: PartitionNumber | None = None,
    segment: Offset | None = None,
) -> Look:
    return Look(scale, partition, segment)


@router.get("/topics/{topic}")
def topic_page(
    request: Request,
    ui: Ui,
    topic: ATopic,
    look: Annotated[Look, Depends(_look)],
    page: PageNumber | None = None,
) -> Response:
    """A topic: that page of its partitions, or the one with the partition that is looked at."""
    page = page or (look.partition or 0) // _PARTITIONS_A_PAGE + 1
    row, base, asked = topic.row, ui.store.base, Asked(retry=False)
    found = found_now(base, [row])
    states = [state for state, _ in found]
    shown = paged(states, page, _PARTITIONS_A_PAGE)
    seen = overview_of(base, row, found)
    told = why(base, row.name, shown.items, asked).partitions
    now = decisions_about(base, shown.items, asked)
    return rendered(
        request,
        "topic.html",
        topic=row,
        settings=topic.settings(),
        seen=seen,
        known_keys=ui.counts.known_keys(seen),
        views=[
            _view(ui, topic, decision, its.sentences, look)
            for decision, its in zip(now, told, strict=True)
        ],
        notable=notable([decision for _, decision in found]),
        growth=growth_of(base, row, states),
        passes=ui.store.passes(topic.name, limit=_PASSES_SHOWN),
        scale=look.scale,
        shown=shown,
    )


def _view(
    ui: Parts, topic: Topic, decision: Decision, sentences: tuple[str, ...], look: Look
) -> PartitionView:
    counted = ui.counts.known_survivors(decision.state)
    drawn = picture(decision, look.scale, counted.segments if counted else None)
    view = PartitionView(decision, drawn, sentences, counted)
    if decision.state.row.partition != look.partition:
        return view
    return _with_segment(ui, topic, view, look.segment)


def _with_segment(ui: Parts, topic: Topic, view: PartitionView, base: int | None) -> PartitionView:
    """The partition with the details of a segment that was clicked."""
    decision = view.decision
    segments = decision.state.segments
    at = next((i for i, s in enumerate(segments) if s.base == base), None)
    if at is None:
        return view
    found = segments[at]
    span = (found.base, found.last_offset + 1)
    number = decision.state.row.partition
    _, files = queries.read_plan(ui.store.base.catalog, topic.row, number, span, _MOST_FILES)
    return replace(
        view,
        chosen=found,
        section=section_of(found, decision),
        survivors=view.counted.segments.get(found.base) if view.counted else None,
        files=files,
        before=segments[at - 1].base if at else None,
        after=segments[at + 1].base if at + 1 < len(segments) else None,
    )
