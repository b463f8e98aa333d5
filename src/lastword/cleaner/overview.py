"""All topics at one moment: how large, how dirty, how well. What the web page and the metrics show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from lastword.catalog import cleaning, queries
from lastword.cleaner.choose import Asked, decisions_for
from lastword.cleaner.plan import Clean, Decision, is_holding_back
from lastword.foundation import Foundation
from lastword.model import TopicRow
from lastword.passes import Pass


@dataclass(frozen=True)
class KeyCount:
    """How many keys have a value: at least, probably, and at most. Only a scan knows exactly."""

    least: int
    probably: int
    most: int


@dataclass(frozen=True)
class TopicOverview:
    """A topic: its size, what is dirty of it, and what is wrong with it."""

    id: int
    name: str
    partitions: int
    policy: str
    appended: int  # offsets that were given out
    dropped: int  # of which so many lie below log start
    records: int
    bytes: int
    tombstones: int
    keys: KeyCount
    dirty_ratio: float  # of the dirtiest partition
    threshold: float  # min.cleanable.dirty.ratio
    eligible: int  # partitions that would be cleaned now
    failed: int  # partitions whose last pass failed
    overdue_ms: int  # by max.compaction.lag.ms, the most overdue partition
    held_by: tuple[str, ...]  # groups that hold back tombstones past their horizon
    paused_ms: int | None
    last_pass_ms: int | None
    mirrors: str | None  # the Kafka topic

    @property
    def is_well(self) -> bool:
        return not (self.failed or self.overdue_ms or self.held_by)


@dataclass(frozen=True)
class Overview:
    """A store at one moment."""

    at_ms: int
    topics: tuple[TopicOverview, ...]
    decisions: tuple[Decision, ...]
    last_round: tuple[Pass, ...]
    seen_ms: int | None  # when any cleaner was last seen
    dead_cleaners: int


def overview(base: Foundation) -> Overview:
    """All topics, now."""
    now_ms = base.clock()
    topics = queries.topics(base.catalog)
    decisions = decisions_for(base, topics, Asked(retry=False))
    by_topic: dict[int, list[Decision]] = defaultdict(list)
    for decision in decisions:
        by_topic[decision.state.topic.id].append(decision)
    last = cleaning.last_passes(base.catalog)
    seen_ms, dead = cleaning.cleaners_seen(base.catalog, now_ms)
    return Overview(
        now_ms,
        tuple(topic_overview(t, by_topic[t.id], last.get(t.id)) for t in topics),
        tuple(decisions),
        tuple(cleaning.last_round(base.catalog)),
        seen_ms,
        dead,
    )


def topic_overview(
    topic: TopicRow, decisions: Sequence[Decision], last: Pass | None
) -> TopicOverview:
    """One topic, from what the cleaner would do with its partitions, and its last pass."""
    segments = [s for d in decisions for s in d.state.segments]
    compact = decisions if topic.config.is_compact else ()
    return TopicOverview(
        id=topic.id,
        name=topic.name,
        partitions=topic.partitions,
        policy=topic.config.policy,
        appended=sum(d.state.row.log_end for d in decisions),
        dropped=sum(d.state.row.log_start for d in decisions),
        records=sum(s.records for s in segments),
        bytes=sum(s.bytes for s in segments),
        tombstones=sum(s.tombstones for s in segments),
        keys=_keys(topic, decisions, last),
        dirty_ratio=max((d.standing.dirty_ratio for d in compact), default=0.0),
        threshold=topic.config.min_cleanable_dirty_ratio,
        eligible=sum(isinstance(d, Clean) for d in decisions),
        failed=sum(d.state.row.failures > 0 for d in compact),
        overdue_ms=max((d.standing.delay_ms for d in compact), default=0),
        held_by=tuple(
            sorted({d.state.held_by for d in compact if is_holding_back(d.state, d.standing)})
        ),
        paused_ms=topic.paused_ms,
        last_pass_ms=last.started_ms if last else None,
        mirrors=topic.source.topic if topic.source else None,
    )


def _keys(topic: TopicRow, decisions: Sequence[Decision], last: Pass | None) -> KeyCount:
    """In the clean section no key comes twice; how many keys of the dirty one are new is a guess.

    A key of a scattered topic may be in several partitions.
    """
    clean = dirty = buried = largest = 0
    for d in decisions:
        values = 0
        for s in d.state.segments:
            if s.last_offset < d.state.row.first_dirty:
                values += s.records - s.tombstones
            else:
                dirty += s.records - s.tombstones
                buried += s.tombstones
        clean += values
        largest = max(largest, values)
    survive = last.records_out / last.records_in if last and last.records_in else 1.0
    hit = buried * clean / max(1, clean + dirty)  # tombstones of the dirty section hit both alike
    least = max(0, (largest if topic.is_scattered else clean) - buried)
    return KeyCount(least, max(least, round(clean + dirty * survive - hit)), clean + dirty)
