"""Why is it, or is it not, compacted? The plan in plain sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lastword.cleaner.choose import Asked, expire, rolls
from lastword.cleaner.plan import Clean, Decision, is_holding_back
from lastword.foundation import Foundation
from lastword.model import TopicRow
from lastword.passes import PartitionState
from lastword.segments import due_ms
from lastword.words import counted, in_bytes, in_duration, in_time


@dataclass(frozen=True)
class PartitionWhy:
    """What the cleaner would do with a partition now, and which rule holds the rest back."""

    partition: int
    is_eligible: bool
    dirty_ratio: float
    clean_bytes: int
    cleanable_bytes: int
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Why:
    """A topic's answer; `str()` is what the command prints."""

    topic: str
    partitions: tuple[PartitionWhy, ...]

    def __str__(self) -> str:
        lines = []
        for p in self.partitions:
            first, *more = p.sentences
            lines.append(f"{self.topic}-{p.partition}: {first}")
            lines += [f"  {sentence}" for sentence in more]
        return "\n".join(lines)


def comes_first(
    base: Foundation, topic: TopicRow, states: Sequence[PartitionState], asked: Asked
) -> dict[int, list[str]]:
    """What a cleaner that came now would do before it decides, by partition."""
    before: dict[int, list[str]] = defaultdict(list)
    for row in (state.row for state in states):
        if rolls(row, topic, asked, base.clock()):
            before[row.partition].append("the active segment, which is old enough, would be rolled")
    for dropped in expire(base, [topic], asked, dry_run=True):
        before[dropped.partition].append(f"retention would drop {dropped}")
    return before


def why(
    topic: str,
    decisions: Iterable[Decision],
    now_ms: int,
    before: Mapping[int, Iterable[str]] | None = None,
) -> Why:
    """The decisions about a topic's partitions, in sentences. `before`: what comes first, by partition."""
    first = before or {}
    found = (_of_partition(d, first.get(d.state.row.partition, ()), now_ms) for d in decisions)
    return Why(topic, tuple(found))


def _of_partition(decision: Decision, first: Iterable[str], now_ms: int) -> PartitionWhy:
    at = decision.standing
    sentences = [*_sentences(decision, now_ms), *(f"before that, {what}" for what in first)]
    return PartitionWhy(
        partition=decision.state.row.partition,
        is_eligible=isinstance(decision, Clean),
        dirty_ratio=at.dirty_ratio,
        clean_bytes=at.clean_bytes,
        cleanable_bytes=at.cleanable_bytes,
        sentences=tuple(sentences),
    )


def _sentences(decision: Decision, now_ms: int) -> Iterator[str]:
    if isinstance(decision, Clean):
        yield f"would be cleaned now: {decision.cause}{_extent(decision)}"
    else:
        yield f"would not be cleaned now: {decision.reason}"
    row = decision.state.row
    if row.failures and row.failure not in str(getattr(decision, "reason", "")):
        yield f"the last {counted(row.failures, 'pass', 'passes')} failed: {row.failure}"
    if decision.state.topic.config.is_compact:
        yield from _held_back(decision, now_ms)
        yield from _tombstones(decision, now_ms)
    yield from _kept(decision, now_ms)


def _extent(plan: Clean) -> str:
    if plan.end == plan.start:
        return ""
    return f"; offsets {plan.start} to {plan.end - 1}, {in_bytes(plan.dirty_bytes)}"


def _held_back(decision: Decision, now_ms: int) -> Iterator[str]:
    """What is dirty, but not cleanable yet."""
    state, at = decision.state, decision.standing
    row, config = state.row, state.topic.config
    if at.too_young is not None and at.cleanable:
        free_ms = at.too_young.max_ms + config.min_compaction_lag_ms
        yield (
            f"offsets from {at.too_young.base} on are protected by min.compaction.lag.ms "
            f"{config.min_compaction_lag_ms}, the next for {in_duration(max(0, free_ms - now_ms))}"
        )
    if row.active_first_ms is not None and not state.topic.is_paused:
        yield (
            f"the newest {in_bytes(row.active_bytes)} are in the active segment, which rolls at "
            f"{in_bytes(config.segment_bytes)} (segment.bytes) or at "
            f"{in_time(due_ms(row, config))} (segment.ms); force rolls it now"
        )


def _kept(decision: Decision, now_ms: int) -> Iterator[str]:
    """How long retention keeps the oldest records."""
    config, segments = decision.state.topic.config, decision.state.segments
    if config.is_delete and config.retention_ms >= 0 and segments:
        goes_ms = segments[0].max_ms + config.retention_ms
        if goes_ms >= now_ms:
            yield f"retention would drop the oldest segment at {in_time(goes_ms)} (retention.ms)"


def _tombstones(decision: Decision, now_ms: int) -> Iterator[str]:
    """How long tombstones of the clean section stay."""
    state, at = decision.state, decision.standing
    waiting = [h.at_ms for h in state.horizons if h.at_ms > now_ms]
    if waiting:
        yield f"tombstones wait for their delete horizon, the next at {in_time(min(waiting))}"
    if is_holding_back(state, at):
        yield (
            f"consumer group {state.held_by!r} has read only up to offset {state.held_from} and "
            "holds later tombstones back"
        )
