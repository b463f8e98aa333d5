"""The JSON of the page: what it reads on demand, and everything that changes something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from lastword.cleaner.choose import Asked, states_of
from lastword.cleaner.overview import TopicOverview
from lastword.cleaner.plan import Clean, Decision
from lastword.cleaner.verdicts import would_remove
from lastword.cleaner.why import Why, comes_first
from lastword.config import LONG_MAX, Setting
from lastword.description import TopicDescription
from lastword.passes import Pass
from lastword.ui import known
from lastword.ui.cleanings import Cleaning
from lastword.ui.counts import LiveKeys, Survivors
from lastword.ui.growth import Growth
from lastword.ui.known import PassAccount
from lastword.ui.parts import ARecord, ATopic, PartitionNumber, Ui


class Problem(BaseModel):
    """What went wrong, in a sentence."""

    error: str
    message: str


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Problem} for status in (*statuses, 403, 422, 503)}


_CHANGES = problems(400, 401, 404, 409, 413)

router = APIRouter(prefix="/api", responses=problems(400, 404))


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewTopic(Body):
    """A topic to create."""

    name: str
    partitions: int = 1
    settings: dict[str, str] = Field(default_factory=dict)


class Changes(Body):
    """Settings to change; null goes back to the default."""

    changes: dict[str, str | None]


class WhatToClean(Body):
    """Which partition, or all; `force` rolls the active segment and ignores the dirty ratio."""

    force: bool = False
    partition: PartitionNumber | None = None


@dataclass(frozen=True)
class MayChange:
    """Whether changes are accepted."""

    may_change: bool


@dataclass(frozen=True)
class Planned:
    """What a cleaning would do with a partition."""

    partition: int
    is_clean: bool
    sentence: str  # why, or why not
    first: tuple[str, ...]  # what would come before that
    start: int | None = None
    end: int | None = None
    records: int = 0  # that it would read
    bytes: int = 0
    removed: Mapping[str, int] | None = None  # records, per reason, if it was asked for


@router.get("/access")
def access(ui: Ui, x_lastword_token: Annotated[str, Header()] = "") -> MayChange:
    """Whether the token that came along is the one for changes."""
    return MayChange(ui.access.is_token(x_lastword_token))


@router.get("/topics")
def topics(ui: Ui) -> list[TopicOverview]:
    """All topics, as they were some seconds ago, or at the most a minute."""
    return list(ui.watch.seen().topics)


@router.post("/topics", status_code=201, responses=_CHANGES)
def create_topic(ui: Ui, new: NewTopic) -> TopicDescription:
    """Create a topic."""
    made = ui.store.create_topic(new.name, new.partitions, new.settings)
    ui.watch.forget()
    return made.describe()


@router.get("/topics/{topic}")
def describe(topic: ATopic) -> TopicDescription:
    """A topic: partitions, segments, settings."""
    return topic.describe()


@router.get("/topics/{topic}/why")
def why(topic: ATopic) -> Why:
    """What the cleaner would do with it now, and what holds it back."""
    return topic.why()


@router.get("/topics/{topic}/plan", responses=problems(409, 429))
def plan(
    ui: Ui,
    topic: ATopic,
    force: bool = False,
    partition: PartitionNumber | None = None,
    count: bool = False,
) -> list[Planned]:
    """The dry run of a cleaning; with `count`, all keys are read to see what would go."""
    base, asked = ui.store.base, Asked(partition, force)
    decisions = ui.store.plan(topic.name, partition=partition, force=force)
    first = comes_first(states_of(base, [topic.row]), asked, base.clock())
    removed: dict[int, dict[str, int]] = {}
    if count:
        with ui.scans.one() as go_on:
            plans = [d for d in decisions if isinstance(d, Clean)]
            removed = {p.state.row.partition: would_remove(base, p, go_on) for p in plans}
    return [_planned(d, first, removed) for d in decisions]


@router.get("/topics/{topic}/keys", responses=problems(409, 429))
def keys(ui: Ui, topic: ATopic) -> LiveKeys:
    """Count the keys that have a value, exactly: all keys are read."""
    return ui.counts.keys(topic, known.overview_of(ui.store.base, topic.row))


@router.get("/topics/{topic}/growth")
def growth(ui: Ui, topic: ATopic) -> Growth:
    """Its bytes over time, with compaction and as they would be without."""
    base, row = ui.store.base, topic.row
    return known.growth_of(base, row, states_of(base, [row]))


@router.get("/topics/{topic}/partitions/{partition}/survivors", responses=problems(409, 429))
def survivors(ui: Ui, topic: ATopic, partition: PartitionNumber) -> Survivors:
    """Count what would be left of each segment of a partition: all its keys are read."""
    return ui.counts.survivors(topic.row, partition)


@router.get(
    "/topics/{topic}/partitions/{partition}/records/{offset}/value",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
def value(topic: ATopic, record: ARecord) -> Response:
    """The bytes of a record's value."""
    where = f"{topic.name}-{record.partition}-{record.offset}"
    if not isinstance(record.value, bytes):
        raise HTTPException(404, f"the record at {where} is a tombstone: it has no value")
    name = f"{where}.bin"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(record.value, media_type="application/octet-stream", headers=headers)


@router.patch("/topics/{topic}/settings", responses=_CHANGES)
def alter_topic(ui: Ui, topic: ATopic, wanted: Changes) -> list[Setting]:
    """Change settings of a topic, all or none."""
    topic.alter(wanted.changes)
    ui.watch.forget()
    return topic.settings()


@router.post("/topics/{topic}/pause", responses=_CHANGES)
def pause(ui: Ui, topic: ATopic) -> TopicOverview:
    """Let the cleaner leave it alone."""
    topic.pause()
    ui.watch.forget()
    return known.overview_of(ui.store.base, topic.row)


@router.post("/topics/{topic}/resume", responses=_CHANGES)
def resume(ui: Ui, topic: ATopic) -> TopicOverview:
    """Let the cleaner take it up again."""
    topic.resume()
    ui.watch.forget()
    return known.overview_of(ui.store.base, topic.row)


@router.post("/topics/{topic}/clean", status_code=202, responses=_CHANGES)
def clean(ui: Ui, topic: ATopic, what: WhatToClean) -> Cleaning:
    """Clean it now, on Spark; ask for the cleaning to see how far it is."""
    return ui.cleanings.start(topic.name, Asked(what.partition, what.force))


@router.get("/cleanings/{cleaning_id}")
def cleaning_of(ui: Ui, cleaning_id: Annotated[int, Path(ge=1, le=LONG_MAX)]) -> Cleaning:
    """How far a cleaning is."""
    return ui.cleanings.get(cleaning_id)


@router.get("/settings")
def settings(ui: Ui) -> list[Setting]:
    """The store's own settings."""
    return ui.store.settings()


@router.patch("/settings", responses=_CHANGES)
def alter_store(ui: Ui, wanted: Changes) -> list[Setting]:
    """Change settings of the store, all or none."""
    ui.store.alter(wanted.changes)
    ui.watch.forget()
    return ui.store.settings()


@router.get("/passes")
def passes(ui: Ui, limit: Annotated[int, Query(ge=1, le=1_000)] = 50) -> list[Pass]:
    """The last passes, newest first."""
    return ui.store.passes(limit=limit)


@router.get("/passes/{pass_id}")
def pass_(ui: Ui, pass_id: Annotated[int, Path(ge=1, le=LONG_MAX)]) -> PassAccount:
    """A pass, and what it did with each file."""
    return known.account_of(ui.store.base, pass_id)


def _planned(
    decision: Decision,
    first: Mapping[int, tuple[str, ...]],
    removed: Mapping[int, Mapping[str, int]],
) -> Planned:
    number = decision.state.row.partition
    before = first.get(number, ())
    if not isinstance(decision, Clean):
        return Planned(number, False, decision.reason, before)
    covered = decision.covered
    return Planned(
        number,
        True,
        decision.cause,
        before,
        decision.start,
        decision.end,
        sum(s.records for s in covered),
        sum(s.bytes for s in covered),
        removed.get(number),
    )
