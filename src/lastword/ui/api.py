"""The JSON of the page: what it reads on demand, and everything that changes something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from lastword.catalog import cleaning, queries
from lastword.cleaner.choose import Asked, decisions_for
from lastword.cleaner.overview import TopicOverview, topic_overview
from lastword.cleaner.plan import Clean, Decision
from lastword.cleaner.why import Why
from lastword.config import LONG_MAX, Setting
from lastword.description import TopicDescription
from lastword.errors import UnknownPassError
from lastword.passes import FileChange, Pass
from lastword.topic import Topic
from lastword.ui.cleanings import Cleaning
from lastword.ui.counts import Survivors
from lastword.ui.growth import Growth, growth
from lastword.ui.parts import ATopic, Offset, PartitionNumber, Parts, Ui, record_at

_GROWTH_PASSES = 300


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
    start: int | None = None
    end: int | None = None
    records: int = 0  # that it would read
    bytes: int = 0


@dataclass(frozen=True)
class PassAccount:
    """A pass, and what it did with each file."""

    done: Pass
    files: tuple[FileChange, ...]


@dataclass(frozen=True)
class Keys:
    """How many keys of a topic have a value, exactly."""

    topic: str
    keys: int


@router.get("/access")
def access(ui: Ui, x_lastword_token: Annotated[str, Header()] = "") -> MayChange:
    """Whether the token that came along is the one for changes."""
    return MayChange(ui.access.is_token(x_lastword_token))


@router.get("/topics")
def topics(ui: Ui) -> list[TopicOverview]:
    """All topics, as they were some seconds ago at the most."""
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


@router.get("/topics/{topic}/plan", responses=problems(409))
def plan(
    ui: Ui,
    topic: ATopic,
    force: bool = False,
    partition: PartitionNumber | None = None,
) -> list[Planned]:
    """The dry run of a cleaning."""
    return [_planned(d) for d in ui.store.plan(topic.name, partition=partition, force=force)]


@router.get("/topics/{topic}/keys", responses=problems(409))
def keys(ui: Ui, topic: ATopic) -> Keys:
    """Count the keys that have a value, exactly: all keys are read."""
    return Keys(topic.name, ui.counts.keys(topic, overview_of(ui, topic)))


@router.get("/topics/{topic}/growth")
def growth_of(ui: Ui, topic: ATopic) -> Growth:
    """Its bytes over time, with compaction and as they would be without."""
    base = ui.store.base
    return growth_from(ui, topic, decisions_for(base, [topic.row], Asked()))


@router.get("/topics/{topic}/partitions/{partition}/survivors", responses=problems(409))
def survivors(ui: Ui, topic: ATopic, partition: PartitionNumber) -> Survivors:
    """Count what would be left of each segment of a partition: all its keys are read."""
    return ui.counts.survivors(topic.row, partition)


@router.get(
    "/topics/{topic}/partitions/{partition}/records/{offset}/value",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
def value(topic: ATopic, partition: PartitionNumber, offset: Offset) -> Response:
    """The bytes of a record's value."""
    record = record_at(topic, partition, offset)
    if not isinstance(record.value, bytes):
        raise HTTPException(404, f"the record at offset {offset} is a tombstone: it has no value")
    name = f"{topic.name}-{partition}-{offset}.bin"
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
    return overview_of(ui, topic)


@router.post("/topics/{topic}/resume", responses=_CHANGES)
def resume(ui: Ui, topic: ATopic) -> TopicOverview:
    """Let the cleaner take it up again."""
    topic.resume()
    ui.watch.forget()
    return overview_of(ui, topic)


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
    return account_of(ui, pass_id)


def overview_of(ui: Parts, topic: Topic) -> TopicOverview:
    """One topic, now."""
    row = topic.row
    decisions = decisions_for(ui.store.base, [row], Asked(retry=False))
    return topic_overview(row, decisions, last_done(ui.store.passes(topic.name, limit=20)))


def last_done(passes: Sequence[Pass]) -> Pass | None:
    """The newest of these that did not fail."""
    return next((p for p in passes if p.error is None), None)


def growth_from(ui: Parts, topic: Topic, decisions: Sequence[Decision]) -> Growth:
    """Its bytes over time, if these are its partitions now."""
    passes = ui.store.passes(topic.name, limit=_GROWTH_PASSES)
    sizes = {d.state.row.partition: sum(s.bytes for s in d.state.segments) for d in decisions}
    is_whole = len(passes) < _GROWTH_PASSES
    since_ms = queries.created_ms(ui.store.base.catalog, topic.row) if is_whole else None
    return growth(passes, sizes, since_ms, ui.store.base.clock())


def account_of(ui: Parts, pass_id: int) -> PassAccount:
    """A pass; UnknownPassError if there is none."""
    found = cleaning.pass_with_files(ui.store.base.catalog, pass_id)
    if found is None:
        raise UnknownPassError(pass_id)
    return PassAccount(found[0], tuple(found[1]))


def _planned(decision: Decision) -> Planned:
    number = decision.state.row.partition
    if not isinstance(decision, Clean):
        return Planned(number, False, decision.reason)
    covered = decision.covered
    return Planned(
        number,
        True,
        decision.cause,
        decision.start,
        decision.end,
        sum(s.records for s in covered),
        sum(s.bytes for s in covered),
    )
