"""The nouns of cleaning, as frozen values: what a pass starts from, and what it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lastword.model import FileFacts, PartitionRow, Segment, TopicRow

OBSOLETE, TOMBSTONE, NULL_KEY = REASONS = ("obsolete", "tombstone", "null key")
ABANDONED = "abandoned: "  # begins the error of a pass that lost to others: it is no fault
BELOW_LOG_START = "below log start"  # which only files that log start has cut through hold


@dataclass(frozen=True)
class Horizon:
    """Tombstones at offsets [start, end), first covered by that pass, may go from `at_ms` on."""

    pass_id: int
    start: int
    end: int
    at_ms: int
    first_tombstone: int  # the lowest that is left


@dataclass(frozen=True, order=True)
class Position:
    """How far a consumer group has read a partition."""

    offset: int
    group: str


@dataclass(frozen=True)
class PartitionState:
    """A partition at one moment: all that decides whether it is cleaned."""

    topic: TopicRow
    row: PartitionRow
    segments: tuple[Segment, ...] = ()
    horizons: tuple[Horizon, ...] = ()
    positions: tuple[Position, ...] = ()  # of active consumer groups, lowest first
    groups_since_ms: int = 0  # those that have not committed since do not count

    @property
    def where(self) -> str:
        return f"{self.topic.name}-{self.row.partition}"

    @property
    def held_from(self) -> int | None:
        """The lowest offset that some active consumer group has read up to."""
        return self.positions[0].offset if self.positions else None


@dataclass(frozen=True)
class NewFile:
    """A swept file and its place in the log."""

    segment_base: int
    base_offset: int
    facts: FileFacts


@dataclass(frozen=True)
class FileChange:
    """What a pass did with a file that it did not keep, or that it wrote."""

    fate: str  # rewritten, merged, emptied; or written
    base_offset: int
    last_offset: int
    records: int
    bytes: int
    removed: Mapping[str, int] = field(default_factory=dict)  # per reason
    into: int | None = None  # base offset of the file that its survivors went to


@dataclass(frozen=True)
class Swap:
    """What a pass changes in its partition: files out, files in, files that change segment."""

    retired: tuple[str, ...] = ()
    added: tuple[NewFile, ...] = ()
    moved: Mapping[str, int] = field(default_factory=dict)  # path → segment base
    first_tombstones: Mapping[int, int | None] = field(default_factory=dict)  # pass id → offset
    exact_from: int = 0  # tombstones below have gone
    held_from: int | None = None  # what consumer groups had read when tombstones were removed
    groups_since_ms: int = 0
    changes: tuple[FileChange, ...] = ()


@dataclass(frozen=True)
class Pass:
    """One cleaning of one partition: what it covered, read, wrote and removed, and why.

    It covered [log start, end), and [start, end) for the first time; tombstones among these may go
    from `horizon_ms` on. `bytes_in` and `bytes_out` are the sizes of what it covered, before and
    after; `bytes_read` and `bytes_written` its I/O.
    """

    topic: str
    partition: int
    cause: str
    by: str
    started_ms: int
    start: int
    end: int
    horizon_ms: int
    dirty_ratio: float = 0.0
    delay_ms: int = 0  # how overdue it was, by max.compaction.lag.ms
    records_in: int = 0
    records_out: int = 0
    removed: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    files_kept: int = 0
    files_rewritten: int = 0  # for dead records in them
    files_merged: int = 0  # without dead records, but small
    files_written: int = 0
    keys: int = 0  # in the maps of last offsets
    map_fill: float = 0.0  # of the fullest map
    shards: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)  # mark, sweep, commit
    jobs: tuple[int, ...] = ()
    first_tombstone: int | None = None  # the lowest that is left of [start, end)
    error: str | None = None  # it failed, or was abandoned, and changed nothing
    id: int = 0

    @property
    def outcome(self) -> str:
        """done, failed or abandoned."""
        return outcome(self.error)


def outcome(error: str | None) -> str:
    """How a pass ended that left this error."""
    if error is None:
        return "done"
    return "abandoned" if error.startswith(ABANDONED) else "failed"
