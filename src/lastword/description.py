"""A topic as it is described: in one line, or with its partitions, segments and settings."""

from __future__ import annotations

from dataclasses import dataclass

from lastword.config import Setting
from lastword.model import Segment, Source


@dataclass(frozen=True)
class TopicSummary:
    """A topic in one line."""

    name: str
    partitions: int
    records: int
    bytes: int
    cleanup_policy: str


@dataclass(frozen=True)
class PartitionDescription:
    """The anatomy of one partition."""

    partition: int
    log_start: int
    log_end: int
    first_dirty: int
    segments: tuple[Segment, ...]

    @property
    def records(self) -> int:
        return sum(s.records for s in self.segments)

    @property
    def bytes(self) -> int:
        return sum(s.bytes for s in self.segments)


@dataclass(frozen=True)
class TopicDescription:
    """A topic as `describe` shows it."""

    name: str
    partitions: tuple[PartitionDescription, ...]
    settings: tuple[Setting, ...]
    source: Source | None = None  # the Kafka topic that it mirrors
    paused_ms: int | None = None  # since when the cleaner leaves it alone

    @property
    def records(self) -> int:
        return sum(p.records for p in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(p.bytes for p in self.partitions)
