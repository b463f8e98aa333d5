"""Plan: whether a partition is cleaned now, and how far. Pure; Kafka's rules, and three of ours.

Beyond Kafka: overdue partitions come first; a partition whose clean section holds tombstones that
may go is eligible without new data; and a pass may use several maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lastword.config import LONG_MAX
from lastword.model import PartitionRow, Segment
from lastword.passes import Horizon, PartitionState, Position
from lastword.words import in_bytes, in_duration, in_time

ENTRY_BYTES = 112  # a map's entry with a key of 16 bytes: to plan with, before keys are seen
MOST_FILLINGS = 32  # of all maps: a pass takes no more dirty records than that
_TOMBSTONES = "tombstones past their horizon"  # the one cause that covers nothing new
REPEATS = 8  # how often a key is expected in the dirty section; a map that fills up is split


@dataclass(frozen=True)
class Capacity:
    """What memory allows: the bytes of all maps together, and how many there are at a time."""

    buffer_bytes: int
    maps: int = 1

    @property
    def map_bytes(self) -> int:
        return self.buffer_bytes // self.maps

    @property
    def map_entries(self) -> int:
        return max(1, self.map_bytes // ENTRY_BYTES)

    @property
    def most_records(self) -> int:
        """Of the dirty section, in one pass."""
        return max(1, self.buffer_bytes // ENTRY_BYTES) * MOST_FILLINGS


@dataclass(frozen=True)
class Standing:
    """The numbers that decide."""

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable: tuple[Segment, ...]
    too_young: Segment | None  # the first segment that min.compaction.lag.ms protects
    delay_ms: int  # how overdue, by max.compaction.lag.ms
    expired: tuple[Horizon, ...]  # tombstones past their horizon, held back or not
    waiting: tuple[Horizon, ...]  # and those that are not past it yet
    is_held: bool  # a consumer group holds back all of them

    @property
    def cleanable_bytes(self) -> int:
        return sum(s.bytes for s in self.cleanable)

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


@dataclass(frozen=True)
class Clean:
    """Clean this partition: cover [log start, end), of which [start, end) for the first time."""

    state: PartitionState
    standing: Standing
    cause: str
    start: int
    end: int
    horizon_ms: int
    shards: int

    @property
    def covered(self) -> list[Segment]:
        return [s for s in self.state.segments if s.base < self.end]

    @property
    def dirty_bytes(self) -> int:
        """Of what it covers for the first time."""
        return sum(s.bytes for s in self.covered if s.last_offset >= self.start)


@dataclass(frozen=True)
class Nothing:
    """Leave this partition alone, and why."""

    state: PartitionState
    standing: Standing
    reason: str


Decision = Clean | Nothing


def decide(
    state: PartitionState,
    now_ms: int,
    capacity: Capacity,
    *,
    force: bool = False,
    retry: bool = False,
) -> Decision:
    """What the cleaner does with a partition now.

    `force` ignores the dirty ratio; `retry` does not wait after a failure.
    """
    at, obstacle = standing(state, now_ms), _obstacle(state, now_ms, retry=retry)
    if obstacle is not None:
        return Nothing(state, at, obstacle)
    cause = _cause(state, at, force)
    if cause is None:
        return Nothing(state, at, _reason(state, at, now_ms))
    taken = () if cause == _TOMBSTONES else _taken(at.cleanable, capacity)
    end = at.first_dirty
    if taken:
        is_all = len(taken) == len(at.cleanable)
        end = at.first_uncleanable if is_all else at.cleanable[len(taken)].base
    records = sum(s.records for s in taken)
    return Clean(
        state=state,
        standing=at,
        cause=cause,
        start=at.first_dirty,
        end=end,
        horizon_ms=_horizon_ms(state, now_ms),
        shards=-(-records // (capacity.map_entries * REPEATS)) or 1,
    )


def over_all(state: PartitionState, now_ms: int) -> Clean:
    """A pass over all of a partition, the active segment included: to see what would be left."""
    at, end = standing(state, now_ms), state.row.log_end
    return Clean(state, at, "", at.first_dirty, end, _horizon_ms(state, now_ms), shards=1)


def standing(state: PartitionState, now_ms: int) -> Standing:
    """Where the sections of a partition lie, and how large they are."""
    row, config = state.row, state.topic.config
    is_valid = row.log_start <= row.first_dirty <= row.log_end
    first_dirty = row.first_dirty if is_valid else row.log_start
    dirty = [s for s in state.segments if not s.is_active and s.last_offset >= first_dirty]
    too_young = None
    if config.min_compaction_lag_ms:
        limit_ms = now_ms - config.min_compaction_lag_ms
        too_young = next((s for s in dirty if s.max_ms > limit_ms), None)
    bound = too_young.base if too_young else row.active_base
    oldest_ms = min((s.first_ms for s in dirty if s.first_ms > 0), default=LONG_MAX)
    horizons = [h for h in state.horizons if h.end > row.log_start]
    expired = tuple(h for h in horizons if h.at_ms <= now_ms)
    return Standing(
        first_dirty=first_dirty,
        first_uncleanable=max(first_dirty, bound),
        clean_bytes=sum(
            s.bytes for s in state.segments if not s.is_active and s.base < first_dirty
        ),
        cleanable=tuple(s for s in dirty if s.base < bound),
        too_young=too_young,
        delay_ms=max(0, now_ms - config.max_compaction_lag_ms - oldest_ms),
        expired=expired,
        waiting=tuple(h for h in horizons if h.at_ms > now_ms),
        is_held=bool(expired) and not any(_may_go(h, state) for h in expired),
    )


def holding_back(state: PartitionState, at: Standing) -> list[Position]:
    """The consumer groups that hold back tombstones which are past their horizon."""
    highest = max((h.first_tombstone for h in at.expired), default=-1)
    return [p for p in state.positions if p.offset <= highest]


def in_order(plans: Iterable[Clean]) -> list[Clean]:
    """Whom to clean first: the most overdue, then the dirtiest."""
    return sorted(plans, key=lambda p: (p.standing.delay_ms, p.standing.dirty_ratio), reverse=True)


def as_if_rolled(state: PartitionState) -> PartitionState:
    """The partition as it would be if its active segment were rolled now."""
    return replace(
        state,
        row=replace(state.row, active_base=state.row.log_end, active_bytes=0, active_first_ms=None),
        segments=tuple(replace(s, is_active=False) for s in state.segments),
    )


def as_if_without_lag(state: PartitionState) -> PartitionState:
    """The partition as it would be if min.compaction.lag.ms protected nothing."""
    config = state.topic.config.model_copy(update={"min_compaction_lag_ms": 0})
    return replace(state, topic=replace(state.topic, config=config))


def as_if_from(state: PartitionState, log_start: int) -> PartitionState:
    """The partition as it would be if retention had raised its log start."""
    if log_start == state.row.log_end:
        state = as_if_rolled(state)
    first_dirty = max(state.row.first_dirty, log_start)
    return replace(
        state,
        row=replace(state.row, log_start=log_start, first_dirty=first_dirty),
        segments=tuple(s for s in state.segments if s.last_offset >= log_start),
    )


def _horizon_ms(state: PartitionState, now_ms: int) -> int:
    """From when the tombstones may go that a pass now covers first."""
    return min(LONG_MAX, now_ms + state.topic.config.delete_retention_ms)


def _obstacle(state: PartitionState, now_ms: int, *, retry: bool) -> str | None:
    """What keeps any pass away from it, however dirty it is."""
    row, config = state.row, state.topic.config
    if state.topic.paused_ms is not None:
        return f"it was paused at {in_time(state.topic.paused_ms)}; resume it"
    if not config.is_compact:
        return f"cleanup.policy is {config.policy or 'empty'}; only compact is cleaned"
    if row.is_claimed(now_ms):
        until = in_time(row.claim_until_ms or 0)
        return f"a cleaner is at work on it (its claim runs until {until})"
    if row.failures and now_ms < row.retry_after_ms and not retry:
        return (
            f"{how_often_failed(row)}, to be tried again at "
            f"{in_time(row.retry_after_ms)}: {row.failure}"
        )
    return None


def how_often_failed(row: PartitionRow) -> str:
    """Of a partition whose last pass failed."""
    return f"the last {'pass' if row.failures == 1 else f'{row.failures} passes'} failed"


def _cause(state: PartitionState, at: Standing, force: bool) -> str | None:
    """Why it is eligible; None if it is not."""
    config = state.topic.config
    if at.cleanable:
        if force:
            return f"forced, dirty ratio {at.dirty_ratio:.2f}"
        if at.delay_ms:
            return f"overdue by {in_duration(at.delay_ms)}"
        if at.dirty_ratio > config.min_cleanable_dirty_ratio:
            return f"dirty ratio {at.dirty_ratio:.2f} above {config.min_cleanable_dirty_ratio:g}"
    if at.expired and not at.is_held:
        return _TOMBSTONES
    return None


def _taken(cleanable: Sequence[Segment], capacity: Capacity) -> Sequence[Segment]:
    """Dirty segments, oldest first, as far as memory allows; at least one."""
    left = capacity.most_records
    for i, segment in enumerate(cleanable):
        left -= segment.records
        if left < 0:
            return cleanable[: max(1, i)]
    return cleanable


def _may_go(horizon: Horizon, state: PartitionState) -> bool:
    return state.held_from is None or horizon.first_tombstone < state.held_from


def _reason(state: PartitionState, at: Standing, now_ms: int) -> str:
    """Which rule holds it back, with numbers and the setting to change."""
    row, config = state.row, state.topic.config
    if at.cleanable:
        limit = config.min_cleanable_dirty_ratio
        reason = (
            f"dirty ratio {at.dirty_ratio:.2f} is not above min.cleanable.dirty.ratio {limit:g}"
        )
        if limit >= 1:
            return f"{reason}, and never will be"
        missing = (limit * at.clean_bytes - (1 - limit) * at.cleanable_bytes) / (1 - limit)
        return f"{reason}; {in_bytes(max(1, int(missing) + 1))} more to go"
    if at.too_young is not None:
        free_ms = at.too_young.max_ms + config.min_compaction_lag_ms
        wait = in_duration(max(0, free_ms - now_ms))
        return (
            f"all that is dirty is younger than min.compaction.lag.ms "
            f"{config.min_compaction_lag_ms} allows; the oldest of it may be cleaned in {wait}"
        )
    if row.active_first_ms is not None:
        return "all that is dirty is in the active segment"
    if row.log_start == row.log_end or not state.segments:
        return "it is empty"
    return "nothing was appended since the last pass"
