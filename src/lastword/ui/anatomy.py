"""The picture of a partition: Kafka's, but live and true to scale. Pure; positions are percent.

A segment is as wide as the offsets that were given out in it, or as its bytes; it is filled as high
as there are records left of these offsets. So what compaction has removed is what is empty.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, pairwise

from lastword.cleaner.plan import Decision
from lastword.model import Segment
from lastword.words import counted, in_bytes

_MOST_BARS = 100  # what is narrower is drawn as one with its neighbours
_CHAR_WIDTH = 0.65  # percent, about
HEIGHT, _LEAST_HEIGHT = 60.0, 2.0  # of a segment: what is there is seen


class Scale(StrEnum):
    """What the width of a segment stands for."""

    OFFSETS = "offsets"
    BYTES = "bytes"


@dataclass(frozen=True)
class Bar:
    """A segment, or neighbouring ones that are too narrow to be drawn alone."""

    x: float
    width: float
    section: str  # clean, dirty, protected, active; kept, where nothing is compacted
    first: int  # base offset of the first segment
    start: int  # offsets [start, end)
    end: int
    segments: int
    records: int
    bytes: int
    tombstones: int
    survivors: int | None  # records that a pass over all of the partition would leave, if counted

    @property
    def title(self) -> str:
        """What a visitor is told who points at it."""
        which = f", {counted(self.segments, 'segment')}" if self.segments > 1 else ""
        alive = ""
        if self.survivors is not None:
            alive = f"\n{self.survivors:,} would be left if all were cleaned"
        most = "at most " if self.first < self.start else ""  # some lie below log start
        return (
            f"{self.section}{which}: offsets {self.start} to {self.end - 1}\n"
            f"{most}{counted(self.records, 'record')} left, {counted(self.end - self.start, 'offset')} "
            f"given out, {in_bytes(self.bytes)}, {counted(self.tombstones, 'tombstone')}{alive}"
        )

    @property
    def height(self) -> float:
        """As much of the whole as there are records left of its offsets."""
        return self._height(self.records)

    @property
    def alive_height(self) -> float:
        """As much as would survive a pass."""
        return self._height(self.survivors or 0)

    def _height(self, records: int) -> float:
        share = min(1.0, records / max(1, self.end - self.start))
        return max(_LEAST_HEIGHT, HEIGHT * share) if records else 0.0


@dataclass(frozen=True)
class Point:
    """An offset with a name."""

    x: float
    name: str
    offset: int
    row: int  # in which line its label stands

    @property
    def is_right(self) -> bool:
        return self.x > 50


@dataclass(frozen=True)
class Picture:
    """A partition, drawn."""

    bars: tuple[Bar, ...]
    points: tuple[Point, ...]

    @property
    def rows(self) -> int:
        return 1 + max((p.row for p in self.points), default=0)


def section_of(segment: Segment, decision: Decision) -> str:
    """Where a segment lies: clean, dirty (cleanable), protected by the lag, or active; else kept."""
    if segment.is_active:
        return "active"
    if not decision.state.topic.config.is_compact:
        return "kept"
    if segment.last_offset < decision.standing.first_dirty:
        return "clean"
    return "dirty" if segment.base < decision.standing.first_uncleanable else "protected"


def delete_retention_point(decision: Decision) -> int:
    """Below it no tombstone waits for its horizon: at the most the first dirty offset."""
    at = decision.standing
    waiting = [h.first_tombstone for h in at.waiting]
    return max(decision.state.row.log_start, min([*waiting, at.first_dirty]))


def picture(
    decision: Decision,
    scale: Scale = Scale.OFFSETS,
    survivors: Mapping[int, int] | None = None,
) -> Picture:
    """A partition as it is now. `survivors`: of its segments, by their base."""
    row, segments = decision.state.row, decision.state.segments
    spans = _spans(segments, row.log_start, row.log_end)
    at = _Axis(spans, segments, scale)
    sections = [section_of(s, decision) for s in segments]
    bars = [
        _bar(segments[i:j], (spans[i][0], spans[j - 1][1]), sections[i], at, survivors)
        for i, j in _drawn_as_one(sections, at.edges)
    ]
    named = {"log start": row.log_start}
    if decision.state.topic.config.is_compact:
        named |= {
            "delete retention point": delete_retention_point(decision),
            "first dirty": decision.standing.first_dirty,
            "first uncleanable": decision.standing.first_uncleanable,
        }
    named["log end"] = row.log_end
    return Picture(tuple(bars), tuple(_placed(named, at)))


class _Axis:
    """Where an offset lies, in percent of the width."""

    def __init__(
        self, spans: Sequence[tuple[int, int]], segments: Sequence[Segment], scale: Scale
    ) -> None:
        is_bytes = scale is Scale.BYTES
        sizes = [
            s.bytes if is_bytes else end - start
            for s, (start, end) in zip(segments, spans, strict=True)
        ]
        total = max(1, sum(sizes))
        self._spans = spans
        self._starts = [start for start, _ in spans]
        self.edges = [100 * size / total for size in accumulate(sizes, initial=0)]

    def __call__(self, offset: int) -> float:
        i = bisect_right(self._starts, offset) - 1
        if i < 0:
            return 0.0
        (start, end), left, right = self._spans[i], self.edges[i], self.edges[i + 1]
        return left + (right - left) * min(1.0, (offset - start) / max(1, end - start))


def _spans(segments: Sequence[Segment], log_start: int, log_end: int) -> list[tuple[int, int]]:
    """The offsets [start, end) of each segment, from log start to log end without a gap."""
    inner = [s.base for s in segments[1:]]
    return list(pairwise([log_start, *inner, log_end])) if segments else []


def _drawn_as_one(sections: Sequence[str], edges: Sequence[float]) -> Iterable[tuple[int, int]]:
    """From which segment to which is a bar: those that are too narrow with neighbours of their section."""
    narrowest = 100 / _MOST_BARS
    firsts: list[int] = []
    for i, section in enumerate(sections):
        first = firsts[-1] if firsts else i
        widest = max(edges[i] - edges[first], edges[i + 1] - edges[i])
        if first == i or sections[first] != section or widest >= narrowest:
            firsts.append(i)
    return pairwise([*firsts, len(sections)])


def _bar(
    segments: Sequence[Segment],
    span: tuple[int, int],
    section: str,
    at: _Axis,
    survivors: Mapping[int, int] | None,
) -> Bar:
    start, end = span
    return Bar(
        x=at(start),
        width=at(end) - at(start),
        section=section,
        first=segments[0].base,
        start=start,
        end=end,
        segments=len(segments),
        records=min(end - start, sum(s.records for s in segments)),  # some may lie below log start
        bytes=sum(s.bytes for s in segments),
        tombstones=sum(s.tombstones for s in segments),
        survivors=_survivors(segments, survivors or {}),
    )


def _survivors(segments: Sequence[Segment], counted: Mapping[int, int]) -> int | None:
    """How many records would be left of these segments, as far as all were counted."""
    known = [counted[s.base] for s in segments if s.base in counted]
    return sum(known) if len(known) == len(segments) else None


def _placed(named: Mapping[str, int], at: _Axis) -> list[Point]:
    """The points from left to right, their labels in lines where they do not overlap."""
    ends: list[float] = []  # where the last label of each line ends
    placed = []
    for offset in sorted(set(named.values())):
        name = " · ".join(n for n, its in named.items() if its == offset)
        x, width = at(offset), _CHAR_WIDTH * (len(name) + 1 + len(str(offset)))
        left = x - width if x > 50 else x
        row = next((i for i, end in enumerate(ends) if end <= left), len(ends))
        ends[row:] = [left + width, *ends[row + 1 :]]
        placed.append(Point(x, name, offset, row))
    return placed
