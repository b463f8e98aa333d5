"""How a topic grew, with compaction and as it would have without. Pure, from its passes.

A pass tells how large what it covered was before and after. What came in between two passes is the
difference between the one's end and the next one's beginning; it is taken to have come evenly. What
the last pass did not cover tells by its timestamps how much of it was there already. If less was there,
retention has dropped some: as large a part with compaction as without.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lastword.model import Segment
from lastword.passes import Pass

_MOST_MOMENTS = 120


@dataclass(frozen=True)
class Growth:
    """Bytes at some moments, in order."""

    at_ms: tuple[int, ...]
    compacted: tuple[int, ...]
    uncompacted: tuple[int, ...]

    @property
    def saved(self) -> float:
        """Which part compaction has saved by now."""
        without = self.uncompacted[-1] if self.uncompacted else 0
        return 1 - self.compacted[-1] / without if without else 0.0

    @property
    def most(self) -> int:
        """The most bytes that there were, with or without."""
        return max(self.uncompacted + self.compacted)

    @property
    def ticks(self) -> tuple[int, ...]:
        """Round sizes up to the most, for an axis: two to four of them."""
        size: int = 10 ** (len(str(self.most)) - 1)
        step = next((s for s in (2 * size, size) if 2 * s <= self.most), max(1, size // 2))
        return tuple(range(step, self.most + 1, step))


def growth(
    passes: Iterable[Pass],
    partitions: Mapping[int, Sequence[Segment]],
    since_ms: int | None,
    now_ms: int,
) -> Growth:
    """From when it was made, or if that is not given from the first of these passes, until now.

    `partitions`: their segments, as they are now.
    """
    by_partition: dict[int, list[Pass]] = defaultdict(list)
    for p in sorted(passes, key=lambda p: (p.started_ms, p.id)):
        if p.error is None:
            by_partition[p.partition].append(p)
    quiet = [s for n, segments in partitions.items() if n not in by_partition for s in segments]
    lines = [_line(its, partitions.get(n, ()), since_ms, now_ms) for n, its in by_partition.items()]
    lines.append(_line((), quiet, since_ms, now_ms))
    moments = _thinned(sorted({ms for line in lines for ms in line.at_ms}))
    # At the moment of a pass there are two sizes: the one before, and the one after.
    times = [(ms, is_after) for ms in moments for is_after in (False, True)]
    found = [[line.at(ms, is_after) for line in lines] for ms, is_after in times]
    return Growth(
        tuple(ms for ms, _ in times),
        tuple(round(sum(value[0] for value in values)) for values in found),
        tuple(round(sum(value[1] for value in values)) for values in found),
    )


def _thinned(moments: Sequence[int]) -> Sequence[int]:
    """As many as can be drawn, the first and the last among them."""
    step = -(-len(moments) // _MOST_MOMENTS)
    return moments if step < 2 else [*moments[:-1:step], moments[-1]]


@dataclass(frozen=True)
class _Line:
    """One partition: bytes with compaction and without, at some moments; a pass has two at its own."""

    at_ms: list[int]
    sizes: list[tuple[float, float]]

    def at(self, ms: int, is_after: bool) -> tuple[float, float]:
        """The sizes at a moment; between two that are known, on the straight line."""
        first, end = bisect_left(self.at_ms, ms), bisect_right(self.at_ms, ms)
        if first < end:
            return self.sizes[end - 1 if is_after else first]
        if end in (0, len(self.at_ms)):
            return self.sizes[min(end, len(self.at_ms) - 1)]
        before, after = self.sizes[end - 1], self.sizes[end]
        share = (ms - self.at_ms[end - 1]) / (self.at_ms[end] - self.at_ms[end - 1])
        compacted, uncompacted = (a + (b - a) * share for a, b in zip(before, after, strict=True))
        return compacted, uncompacted


def _line(
    passes: Sequence[Pass], segments: Sequence[Segment], since_ms: int | None, now_ms: int
) -> _Line:
    points = [] if since_ms is None else [(since_ms, (0.0, 0.0))]
    compacted = uncompacted = 0.0
    for p in passes:
        rest = _there_already(segments, p) if p is passes[-1] else 0.0
        before = p.bytes_in + rest
        uncompacted = _without(uncompacted, compacted, before)
        compacted = p.bytes_out + rest
        points.append((p.started_ms, (before, uncompacted)))
        points.append((p.started_ms, (compacted, uncompacted)))
    size = sum(s.bytes for s in segments)
    sizes = (size, _without(uncompacted, compacted, size))
    began_ms = points[-1][0] if points else now_ms
    newest_ms = max((s.max_ms for s in segments), default=now_ms)
    points.append((min(now_ms, max(began_ms, newest_ms)), sizes))  # nothing came since then
    points.append((now_ms, sizes))
    return _Line([ms for ms, _ in points], [sizes for _, sizes in points])


def _without(uncompacted: float, compacted: float, size: float) -> float:
    """What there would be without compaction when there is `size`, from what there was with and without."""
    if size < compacted:
        return max(size, uncompacted * size / compacted)
    return max(size, uncompacted + size - compacted)


def _there_already(segments: Iterable[Segment], p: Pass) -> float:
    """Bytes that a pass did not cover, as far as they are older than it; they came evenly."""
    return sum(s.bytes * _share_before(p.started_ms, s) for s in segments if s.base >= p.end)


def _share_before(ms: int, segment: Segment) -> float:
    first_ms, last_ms = segment.first_ms, max(segment.first_ms, segment.max_ms)
    if not first_ms < ms < last_ms:
        return float(last_ms <= ms)
    return (ms - first_ms) / (last_ms - first_ms)
