"""The page of a topic: its anatomy, why, growth, passes and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from lastword.catalog import queries
from lastword.cleaner.choose import Asked, decisions_about, states_of
from lastword.cleaner.plan import Decision
from lastword.cleaner.why import comes_first, why
from lastword.model import LogFile, Segment
from lastword.topic import Topic
from lastword.ui.anatomy import Picture, Scale, picture, section_of
from lastword.ui.known import growth_of, overview_of
from lastword.ui.parts import ATopic, Offset, PartitionNumber, Parts, Ui
from lastword.ui.render import PageNumber, paged, rendered

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_PARTITIONS_A_PAGE = 8
_PASSES_SHOWN = 12
_MOST_FILES = 200


@dataclass(frozen=True)
class PartitionView:
    """A partition as its part of the page shows it."""

    decision: Decision
    picture: Picture
    sentences: tuple[str, ...]
    is_counted: bool
    chosen: Segment | None = None
    section: str = ""
    survivors: int | None = None
    files: Sequence[LogFile] = ()
    before: int | None = None  # the neighbours of the chosen one
    after: int | None = None


@dataclass(frozen=True)
class Chosen:
    """A segment that was clicked."""

    partition: int | None
    segment: int | None


@router.get("/topics/{topic}")
def topic_page(
    request: Request,
    ui: Ui,
    topic: ATopic,
    scale: Scale = Scale.OFFSETS,
    page: PageNumber = 1,
    partition: PartitionNumber | None = None,
    segment: Offset | None = None,
) -> Response:
    """A topic."""
    row, base, asked = topic.row, ui.store.base, Asked(retry=False)
    states = states_of(base, [row])
    decisions = decisions_about(base, states, asked)
    would = decisions_about(base, states, asked, as_if=True)
    before = comes_first(base, row, states, asked)
    told = why(row.name, would, base.clock(), before).partitions
    sentences = {p.partition: p.sentences for p in told}
    shown = paged(decisions, page, _PARTITIONS_A_PAGE)
    chosen = Chosen(partition, segment)
    passes = ui.store.passes(topic.name, limit=_PASSES_SHOWN)
    seen = overview_of(base, row, list(zip(states, would, strict=True)))
    return rendered(
        request,
        "topic.html",
        topic=row,
        settings=topic.settings(),
        seen=seen,
        exact_keys=ui.counts.known_keys(seen),
        views=[
            _view(ui, topic, d, scale, sentences.get(d.state.row.partition, ()), chosen)
            for d in shown.items
        ],
        growth=growth_of(base, row, states),
        passes=passes,
        scale=scale,
        shown=shown,
    )


def _view(
    ui: Parts,
    topic: Topic,
    decision: Decision,
    scale: Scale,
    sentences: tuple[str, ...],
    chosen: Chosen,
) -> PartitionView:
    counted = ui.counts.known_survivors(decision.state)
    survivors = counted.segments if counted else None
    drawn = picture(decision, ui.store.base.clock(), scale, survivors)
    view = PartitionView(decision, drawn, sentences, survivors is not None)
    if decision.state.row.partition != chosen.partition:
        return view
    return _with_segment(ui, topic, view, chosen.segment, survivors or {})


def _with_segment(
    ui: Parts, topic: Topic, view: PartitionView, base: int | None, survivors: Mapping[int, int]
) -> PartitionView:
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
        survivors=survivors.get(found.base),
        files=files,
        before=segments[at - 1].base if at else None,
        after=segments[at + 1].base if at + 1 < len(segments) else None,
    )
