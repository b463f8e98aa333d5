"""When the active segment is rolled: Kafka's rule, as a pure function."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from lastword.config import TopicConfig
from lastword.model import FileFacts, PartitionRow


@dataclass(frozen=True)
class ActiveSegment:
    """The segment that grows. `first_ms` is None while it is empty."""

    base: int
    bytes: int
    first_ms: int | None

    @classmethod
    def of(cls, partition: PartitionRow) -> ActiveSegment:
        return cls(partition.active_base, partition.active_bytes, partition.active_first_ms)

    def grown_by(self, facts: FileFacts) -> ActiveSegment:
        first_ms = facts.first_ms if self.first_ms is None else self.first_ms
        return ActiveSegment(self.base, self.bytes + facts.bytes, first_ms)


def rolls_before(active: ActiveSegment, coming: FileFacts, config: TopicConfig, seed: str) -> bool:
    """Whether the active segment is closed before this file is added to it.

    By size: it would grow beyond `segment.bytes`. By time: the newest record to come is more than
    `segment.ms` (less the jitter) younger than the segment's first.
    """
    if active.first_ms is None:
        return False
    if active.bytes + coming.bytes > config.segment_bytes:
        return True
    return coming.max_ms - active.first_ms > config.roll_ms - jitter_ms(config, seed, active.base)


def is_due(partition: PartitionRow, config: TopicConfig, now_ms: int) -> bool:
    """Whether a quiet active segment is closed by the cleaner: its first record is too old."""
    return partition.active_first_ms is not None and now_ms > due_ms(partition, config)


def due_ms(partition: PartitionRow, config: TopicConfig) -> int:
    """When the active segment, which has records, becomes due."""
    seed = f"{partition.topic_id}/{partition.partition}"
    roll_ms = config.roll_ms - jitter_ms(config, seed, partition.active_base)
    return (partition.active_first_ms or 0) + roll_ms


def jitter_ms(config: TopicConfig, seed: str, segment_base: int) -> int:
    """This segment's share of `segment.jitter.ms`: the same whenever it is asked for."""
    bound = min(config.segment_jitter_ms, config.segment_ms)
    return crc32(f"{seed}/{segment_base}".encode()) % bound if bound else 0
