"""All topics at one moment: how large, how dirty, how well. What the web page and the metrics show.

Sizes are as they are. What is dirty, due or overdue is what a cleaner that came now would find, after
it has rolled active segments that are too old and dropped what retention drops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from lastword.catalog import claims, cleaning, queries
from lastword.catalog.topics import store_settings
from lastword.cleaner.choose import Asked, decisions_about, states_of
from lastword.cleaner.plan import Clean, Decision, holding_back
from lastword.foundation import Foundation
from lastword.model import TopicRow
from lastword.passes import TOMBSTONE, PartitionState, Pass

Found = tuple[PartitionState, Decision]  # a partition, and what the cleaner would do with it


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
    at_work: int  # partitions that a cleaner is at work on
    failed: int  # partitions whose last pass failed
    overdue_ms: int  # by max.compaction.lag.ms, the most overdue partition
    held_by: tuple[str, ...]  # groups that hold back tombstones past their horizon
    paused_ms: int | None
    last_pass_ms: int | None
    mirrors: str | None  # the Kafka topic

    @property
    def is_well(self) -> bool:
        return not (self.is_bad or self.held_by)

    @property
    def is_bad(self) -> bool:
        """Whether something is wrong with it; groups that hold tombstones back are not, for a while."""
        return bool(self.failed or self.overdue_ms)


@dataclass(frozen=True)
class Overview:
    """A store at one moment."""

    at_ms: int
    topics: tuple[TopicOverview, ...]
    decisions: tuple[Decision, ...]
    last_round: tuple[Pass, ...]
    seen_ms: int | None  # when any cleaner was last seen
    dead_cleaners: int
    is_enabled: bool  # log.cleaner.enable


def overview(base: Foundation) -> Overview:
    """All topics, now."""
    now_ms = base.clock()
    topics = queries.topics(base.catalog)
    found = found_now(base, topics)
    by_topic: dict[int, list[Found]] = defaultdict(list)
    for its in found:
        by_topic[its[0].topic.id].append(its)
    last = cleaning.last_passes(base.catalog)
    seen_ms, dead = claims.cleaners_seen(base.catalog, now_ms)
    return Overview(
        now_ms,
        tuple(topic_overview(t, by_topic[t.id], last.get(t.id), now_ms) for t in topics),
        tuple(decision for _, decision in found),
        tuple(cleaning.last_round(base.catalog)),
        seen_ms,
        dead,
        store_settings(base.catalog).log_cleaner_enable,
    )


def found_now(base: Foundation, topics: Sequence[TopicRow]) -> list[Found]:
    """The partitions of these topics, with what a cleaner that came now would do with each."""
    states = states_of(base, topics)
    decisions = decisions_about(base, states, Asked(retry=False), as_if=True)
    return list(zip(states, decisions, strict=True))


def topic_overview(
    topic: TopicRow, found: Sequence[Found], last: Pass | None, now_ms: int
) -> TopicOverview:
    """One topic, from its partitions and what the cleaner would do with them, and its last pass."""
    states, decisions = [state for state, _ in found], [decision for _, decision in found]
    segments = [s for state in states for s in state.segments]
    compact = decisions if topic.config.is_compact else ()
    return TopicOverview(
        id=topic.id,
        name=topic.name,
        partitions=topic.partitions,
        policy=topic.config.policy,
        appended=sum(s.row.log_end for s in states),
        dropped=sum(s.row.log_start for s in states),
        records=sum(s.records for s in segments),
        bytes=sum(s.bytes for s in segments),
        tombstones=sum(s.tombstones for s in segments),
        keys=_keys(topic, states, last),
        dirty_ratio=max((d.standing.dirty_ratio for d in compact), default=0.0),
        threshold=topic.config.min_cleanable_dirty_ratio,
        eligible=sum(isinstance(d, Clean) for d in decisions),
        at_work=sum(s.row.is_claimed(now_ms) for s in states),
        failed=sum(d.state.row.failures > 0 for d in compact),
        overdue_ms=max((d.standing.delay_ms for d in compact), default=0),
        held_by=tuple(
            sorted({p.group for d in compact for p in holding_back(d.state, d.standing)})
        ),
        paused_ms=topic.paused_ms,
        last_pass_ms=last.started_ms if last else None,
        mirrors=topic.source.topic if topic.source else None,
    )


def _keys(topic: TopicRow, states: Sequence[PartitionState], last: Pass | None) -> KeyCount:
    """In the clean section no key comes twice; how many keys of the dirty one are new is a guess.

    A key of a scattered topic may be in several partitions, and a tombstone in any bury it.
    """
    clean = dirty = buried = largest = lost = 0
    for state in states:
        values = 0
        for s in state.segments:
            lost += max(0, min(s.records, state.row.log_start - s.base))  # at most, below log start
            if s.last_offset < state.row.first_dirty:
                values += s.records - s.tombstones
                lost += s.tombstones if topic.is_scattered else 0
            else:
                dirty += s.records - s.tombstones
                buried += s.tombstones
        clean += values
        largest = max(largest, values)
    least = max(0, (largest if topic.is_scattered else clean) - buried - lost)
    most = clean + dirty
    new = _share_of_new_keys(last)
    # A tombstone deletes one of the new keys, or else any of those that have a value.
    deleted = buried * min(1.0, new + clean / max(1, clean + dirty))
    probably = round(clean + new * (dirty + buried) - deleted)
    return KeyCount(least, min(most, max(least, probably)), most)


def _share_of_new_keys(last: Pass | None) -> float:
    """Of the records that the last pass covered first, how many brought a key that was not known."""
    if last is None or last.start == last.end:
        return 1.0
    covered = last.end - last.start
    known = max(0, last.records_in - covered)
    kept = last.records_out + last.removed[TOMBSTONE]
    return min(1.0, max(0.0, (kept - known) / covered))
