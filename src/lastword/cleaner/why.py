"""Why is it, or is it not, compacted? The plan in plain sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lastword import retention
from lastword.catalog.topics import store_settings
from lastword.cleaner.choose import Asked, decisions_about, rolls
from lastword.cleaner.plan import Clean, Decision, holding_back, how_often_failed
from lastword.foundation import Foundation
from lastword.passes import PartitionState
from lastword.segments import due_ms
from lastword.words import in_bytes, in_duration, in_time

_SWITCHED_OFF = (
    "the cleaner service is switched off (log.cleaner.enable is false); only 'lastword clean' and "
    "the page's Clean… do it"
)


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


def why(base: Foundation, topic: str, states: Sequence[PartitionState], asked: Asked) -> Why:
    """What a cleaner that came now would do with these partitions of a topic."""
    decisions, now_ms = decisions_about(base, states, asked, as_if=True), base.clock()
    first = comes_first(states, asked, now_ms)
    is_off = not store_settings(base.catalog).log_cleaner_enable
    found = []
    for d in decisions:
        last = [_SWITCHED_OFF] if is_off and d.state.topic.config.is_compact else []
        found.append(partition_why(d, now_ms, [*first[d.state.row.partition], *last]))
    return Why(topic, tuple(found))


def comes_first(
    states: Iterable[PartitionState], asked: Asked, now_ms: int
) -> dict[int, tuple[str, ...]]:
    """What a cleaner that came now would do before it cleans, by partition."""
    return {state.row.partition: tuple(_first(state, asked, now_ms)) for state in states}


def _first(state: PartitionState, asked: Asked, now_ms: int) -> Iterator[str]:
    row = state.row
    if rolls(row, state.topic, asked, now_ms):
        why_now = "as forced" if asked.force else "it is old enough"
        yield f"before that, the active segment would be rolled: {why_now}"
    dropped = retention.plan(state.topic, row.partition, state.segments, now_ms)
    if dropped and not row.is_claimed(now_ms):
        yield f"before that, retention would drop {dropped}"


def partition_why(decision: Decision, now_ms: int, more: Iterable[str] = ()) -> PartitionWhy:
    """A decision in sentences, and some more of them."""
    at = decision.standing
    sentences = [*_sentences(decision, now_ms), *more]
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
        yield f"{how_often_failed(row)}: {row.failure}"
    if decision.state.topic.config.is_compact:
        yield from _held_back(decision, now_ms)
        yield from _tombstones(decision)
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
        by = "segment.ms" if config.roll_ms == config.segment_ms else "max.compaction.lag.ms"
        yield (
            f"the newest {in_bytes(row.active_bytes)} are in the active segment, which rolls at "
            f"{in_bytes(config.segment_bytes)} (segment.bytes) or at "
            f"{in_time(due_ms(row, config))} ({by}); force would roll it"
        )


def _kept(decision: Decision, now_ms: int) -> Iterator[str]:
    """How long retention keeps the oldest records."""
    topic, segments = decision.state.topic, decision.state.segments
    config = topic.config
    if config.is_delete and config.retention_ms >= 0 and segments and not topic.is_paused:
        goes_ms = segments[0].max_ms + config.retention_ms
        if goes_ms >= now_ms:
            yield f"retention would drop the oldest segment at {in_time(goes_ms)} (retention.ms)"


def _tombstones(decision: Decision) -> Iterator[str]:
    """How long tombstones of the clean section stay."""
    state, at = decision.state, decision.standing
    if at.waiting:
        next_ms = min(h.at_ms for h in at.waiting)
        yield f"tombstones wait for their delete horizon, the next at {in_time(next_ms)}"
    for behind in holding_back(state, at):
        yield (
            f"consumer group {behind.group!r} has read only up to offset {behind.offset} and holds "
            "later tombstones back"
        )
