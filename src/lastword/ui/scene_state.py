"""A scene as its page draws it: each record with where it lies, and what the pass does with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lastword.cleaner.plan import Decision
from lastword.cleaner.verdicts import Verdict
from lastword.cleaner.work import Work
from lastword.files.reader import FileReader
from lastword.files.root import DataRoot
from lastword.model import LogFile, Record
from lastword.ui.anatomy import section_of
from lastword.ui.values import spelled
from lastword.words import in_duration


class Phase(StrEnum):
    """How far the pass is. After the commit, as when idle, the cleaner looks."""

    IDLE = "idle"
    PLANNED = "planned"
    MARKED = "marked"
    SWEPT = "swept"
    COMMITTED = "committed"


@dataclass(frozen=True)
class SceneRecord:
    """A record, where it lies, and what the pass that is under way does with it."""

    offset: int
    key: str
    value: str | None
    segment: int
    section: str
    verdict: str | None = None
    goes: bool = False
    superseded_by: int | None = None
    waits: str | None = None  # how long, of a tombstone that a pass has covered


@dataclass(frozen=True)
class SceneState:
    """All that the page draws."""

    id: str
    clock_ms: int
    clock: str
    phase: Phase
    message: str
    records: tuple[SceneRecord, ...]
    log_start: int
    delete_retention_point: int
    first_dirty: int
    log_end: int
    why: tuple[str, ...]
    offset_map: dict[str, int] = field(default_factory=dict)  # filled by mark
    survivors: tuple[int, ...] = ()  # offsets in the file that sweep has written
    latest: dict[str, str] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)  # so far, per reason
    passes: int = 0


def records_of(
    records: Iterable[Record], decision: Decision, found: Mapping[int, Verdict], now_ms: int
) -> tuple[SceneRecord, ...]:
    """The log, with the verdicts of mark, by offset."""
    return tuple(_shown(record, decision, found, now_ms) for record in records)


def survivors_of(root: DataRoot, work: Work) -> tuple[int, ...]:
    """The offsets in the files that sweep has written."""
    topic, number = work.plan.state.topic.name, work.plan.state.row.partition
    offsets: list[int] = []
    for new in work.swept:
        last = new.base_offset + new.facts.last_delta
        file = LogFile(topic, number, new.segment_base, new.base_offset, last, new.facts)
        reader = FileReader(root, file)
        for i in reader.row_groups(0, last + 1):
            offsets += reader.read(i, [])["offset"].to_pylist()
    return tuple(offsets)


def text_of(value: bytes | str) -> str:
    """A key or a value as it is drawn."""
    return spelled(value.decode() if isinstance(value, bytes) else value)


def _shown(
    record: Record, decision: Decision, found: Mapping[int, Verdict], now_ms: int
) -> SceneRecord:
    offset = record.offset or 0
    horizons = decision.state.horizons if record.is_tombstone else ()
    at_ms = next((h.at_ms for h in horizons if h.start <= offset < h.end), None)
    segment = next(s for s in reversed(decision.state.segments) if s.base <= offset)
    verdict = found.get(offset)
    return SceneRecord(
        offset=offset,
        key=text_of(record.key or b""),
        value=None if record.value is None else text_of(record.value),
        segment=segment.base,
        section=section_of(segment, decision),
        verdict=verdict.sentence if verdict else None,
        goes=verdict is not None and not verdict.is_kept,
        superseded_by=verdict.superseded_by if verdict else None,
        waits=None if at_ms is None else in_duration(max(0, at_ms - now_ms)),
    )
