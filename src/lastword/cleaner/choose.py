"""Choose: what a round does to the partitions that it was asked for: roll, expire, and plan.

The dry run and `why` ask the same functions what would be done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from lastword import retention
from lastword.catalog import cleaning, queries
from lastword.catalog.commits import commit_roll
from lastword.catalog.topics import store_settings
from lastword.cleaner.plan import (
    Capacity,
    Clean,
    Decision,
    as_if_from,
    as_if_rolled,
    as_if_without_lag,
    decide,
)
from lastword.errors import UnknownTopicError
from lastword.foundation import Foundation
from lastword.model import PartitionRow, TopicRow
from lastword.passes import PartitionState
from lastword.retention import Expire
from lastword.segments import is_due

_ROUND_RECORDS = 1 << 30  # a bit each is kept in the driver between mark and sweep
_ROUND_BYTES = 64 << 30  # and nothing is committed before the last of them is swept


@dataclass(frozen=True)
class Asked:
    """What a round is asked for: one partition, or some, or all.

    `retry`: do not wait after failures. `at_once`: not even min.compaction.lag.ms holds.
    """

    partition: int | None = None
    force: bool = False
    retry: bool = True
    some: frozenset[int] | None = None
    at_once: bool = False

    def wants(self, partition: int) -> bool:
        return self.partition in (None, partition) and (self.some is None or partition in self.some)


def roll(base: Foundation, topics: Iterable[TopicRow], asked: Asked) -> None:
    """Roll the active segments: all if it is forced, else those that have become too old."""
    by_id = {t.id: t for t in topics}
    for row in queries.partitions_of(base.catalog, list(by_id.values())):
        if asked.wants(row.partition) and rolls(row, by_id[row.topic_id], asked, base.clock()):
            with suppress(UnknownTopicError):
                commit_roll(
                    base.catalog,
                    by_id[row.topic_id],
                    row.partition,
                    base.clock(),
                    only_due=not asked.force,
                )


def expire(
    base: Foundation, topics: Iterable[TopicRow], asked: Asked, *, dry_run: bool = False
) -> list[Expire]:
    """Run retention, but not where another cleaner is at work: its pass would be for nothing."""
    both = [t for t in topics if t.config.is_delete]
    now_ms = base.clock()
    claimed = {
        (row.topic_id, row.partition)
        for row in queries.partitions_of(base.catalog, both)
        if row.is_claimed(now_ms)
    }

    def wanted(topic: TopicRow, number: int) -> bool:
        return asked.wants(number) and (topic.id, number) not in claimed

    return retention.expire(base.catalog, both, now_ms, dry_run=dry_run, wanted=wanted)


def decisions_for(
    base: Foundation,
    topics: Sequence[TopicRow],
    asked: Asked,
    tasks_at_once: int = 1,
    *,
    as_if: bool = False,
) -> list[Decision]:
    """What the cleaner does with every partition that was asked for.

    `as_if`: what it would do, if it were to roll and expire first what it rolls and expires.
    """
    return decisions_about(base, states_of(base, topics), asked, tasks_at_once, as_if=as_if)


def states_of(base: Foundation, topics: Sequence[TopicRow]) -> list[PartitionState]:
    """What is to be known of every partition of these topics, to decide about it."""
    minutes = store_settings(base.catalog).offsets_retention_minutes
    return cleaning.states(base.catalog, topics, base.clock() - minutes * 60_000)


def decisions_about(
    base: Foundation,
    states: Iterable[PartitionState],
    asked: Asked,
    tasks_at_once: int = 1,
    *,
    as_if: bool = False,
) -> list[Decision]:
    """The same, about partitions as they were found."""
    now_ms = base.clock()
    buffer = store_settings(base.catalog).log_cleaner_dedupe_buffer_size
    capacity = Capacity(buffer, tasks_at_once)

    def as_planned(state: PartitionState) -> PartitionState:
        if asked.at_once:
            state = as_if_without_lag(state)
        if as_if and rolls(state.row, state.topic, asked, now_ms):
            state = as_if_rolled(state)
        dropped = retention.plan(state.topic, state.row.partition, state.segments, now_ms)
        return as_if_from(state, dropped.log_start) if as_if and dropped else state

    return [
        decide(as_planned(state), now_ms, capacity, force=asked.force, retry=asked.retry)
        for state in states
        if asked.wants(state.row.partition)
    ]


def rolls(row: PartitionRow, topic: TopicRow, asked: Asked, now_ms: int) -> bool:
    """Whether a round rolls the active segment."""
    if not topic.config.is_compact or topic.is_paused or row.active_first_ms is None:
        return False
    return asked.force or is_due(row, topic.config, now_ms)


def within_reach(plans: Sequence[Clean]) -> list[Clean]:
    """The first plans, as many as one round should do; at least one."""
    records = size = 0
    for i, plan in enumerate(plans):
        records += sum(s.records for s in plan.covered)
        size += sum(s.bytes for s in plan.covered)
        if records > _ROUND_RECORDS or size > _ROUND_BYTES:
            return list(plans[: max(1, i)])
    return list(plans)
