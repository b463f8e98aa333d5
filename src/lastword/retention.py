"""Retention: `delete` drops whole old segments, by time and by size, oldest first.

As Kafka: a segment goes when its newest record is older than `retention.ms`, or while what is left
is still at least `retention.bytes`; the first that may stay ends it. Log start moves to the base
of the first survivor in the same transaction that retires the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from lastword.catalog import queries
from lastword.catalog.commits import NewLogStart, commit_log_start
from lastword.catalog.engine import Catalog
from lastword.config import TopicConfig
from lastword.errors import ConflictError, UnknownTopicError
from lastword.model import Segment, TopicRow
from lastword.words import counted


@dataclass(frozen=True)
class Expire:
    """Segments of one partition that retention drops."""

    topic: str
    partition: int
    log_start: int  # after it
    segments: int
    records: int
    bytes: int
    reason: str

    @property
    def where(self) -> str:
        return f"{self.topic}-{self.partition}"

    def __str__(self) -> str:
        segments, records = counted(self.segments, "segment"), counted(self.records, "record")
        return f"{segments}, {records} ({self.reason})"


def plan(
    topic: TopicRow, partition: int, segments: Sequence[Segment], now_ms: int
) -> Expire | None:
    """What retention would drop now; None if nothing."""
    if not topic.config.is_delete or topic.is_paused:
        return None
    by_size = _count_by_size(segments, topic.config)
    by_time = _count_by_time(segments[by_size:], topic.config, now_ms)
    count = by_size + by_time
    if count == 0:
        return None
    dropped = segments[:count]
    reasons = []
    if by_size:
        reasons.append(f"{by_size} over retention.bytes={topic.config.retention_bytes}")
    if by_time:
        reasons.append(f"{by_time} older than retention.ms={topic.config.retention_ms}")
    return Expire(
        topic=topic.name,
        partition=partition,
        log_start=segments[count].base if count < len(segments) else dropped[-1].last_offset + 1,
        segments=count,
        records=sum(s.records for s in dropped),
        bytes=sum(s.bytes for s in dropped),
        reason=", ".join(reasons),
    )


def expire(
    catalog: Catalog,
    topics: Iterable[TopicRow],
    now_ms: int,
    *,
    dry_run: bool = False,
    wanted: Callable[[TopicRow, int], bool] = lambda _topic, _partition: True,
) -> list[Expire]:
    """Drop what retention says, in the wanted partitions; with `dry_run`, only say what.

    A topic that is deleted, or no longer has the policy, by the time it is its turn, is left alone.
    """
    done = []
    for topic in topics:
        for number, segments in queries.segments(catalog, topic).items():
            expired = plan(topic, number, segments, now_ms)
            if expired is None or not wanted(topic, number):
                continue
            if not dry_run:
                new = NewLogStart(number, expired.log_start, expired.reason, under=topic.config)
                try:
                    commit_log_start(catalog, topic, new, now_ms)
                except (UnknownTopicError, ConflictError):
                    continue
            done.append(expired)
    return done


def _count_by_size(segments: Sequence[Segment], config: TopicConfig) -> int:
    if config.retention_bytes < 0:
        return 0
    left = sum(s.bytes for s in segments)
    count = 0
    for segment in segments:
        left -= segment.bytes
        if left < config.retention_bytes:
            break
        count += 1
    return count


def _count_by_time(segments: Sequence[Segment], config: TopicConfig, now_ms: int) -> int:
    if config.retention_ms < 0:
        return 0
    return sum(1 for _ in takewhile(lambda s: now_ms - s.max_ms > config.retention_ms, segments))
