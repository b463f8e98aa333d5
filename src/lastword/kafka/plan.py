"""What a round of a mirror copies, and what it must not go on with: pure.

A partition is copied from its log end here to Kafka's. Whatever lies between but is no longer in Kafka
is a gap if Kafka compacted it away, and a loss if Kafka's log starts beyond it, or has been cut.

Tombstones are the delicate part. One that came after the copy last had everything stays in Kafka for
`delete.retention.ms` at the least; a mirror that is later than that may find the value it deletes
already copied, and the tombstone gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lastword.kafka.cluster import Bounds
from lastword.model import Copy, PartitionRow, StagedFile, TopicRow
from lastword.words import in_duration

GO_ON = "--allow-loss goes on without it"


@dataclass(frozen=True)
class Standing:
    """A partition here and in Kafka."""

    topic: TopicRow
    row: PartitionRow
    kafka: Bounds
    tombstones_ms: int | None  # how long tombstones stay in Kafka; None if it does not compact

    @property
    def where(self) -> str:
        return f"{self.topic.name}-{self.row.partition}"

    @property
    def is_new(self) -> bool:
        return self.row.mirrored_ms is None

    @property
    def position(self) -> int:
        """Where the copy goes on."""
        return self.kafka.start if self.is_new else self.row.log_end

    @property
    def lag(self) -> int:
        return max(0, self.kafka.end - max(self.position, self.kafka.start))


@dataclass(frozen=True)
class Trouble:
    """A topic or a partition that was not copied, and why."""

    where: str
    sentence: str


@dataclass(frozen=True)
class Plan:
    """The copies of a round, and what cannot be copied."""

    copies: tuple[Copy, ...] = ()
    troubles: tuple[Trouble, ...] = ()


def plan(
    standings: Sequence[Standing], looked_ms: int, most_offsets: int, *, allow_loss: bool = False
) -> Plan:
    """Copy at most so many offsets, shared among the partitions by how much each lags."""
    lost = {s.where: trouble for s in standings if (trouble := _loss(s, allow_loss)) is not None}
    sound = [s for s in standings if s.where not in lost]
    total = sum(s.lag for s in sound)
    copies = []
    for s in sound:
        if s.kafka.end <= s.row.log_end:
            continue
        start = max(s.position, s.kafka.start)
        fits = s.lag if total <= most_offsets else max(1, most_offsets * s.lag // total)
        end = start + min(s.lag, fits)
        is_all = end == s.kafka.end
        copies.append(
            Copy(
                s.topic.id,
                s.row.partition,
                position=s.row.log_end,
                start=start,
                end=end,
                mirrored_ms=looked_ms if is_all else s.row.mirrored_ms or looked_ms,
                may_miss_tombstones=start > s.position or _is_late(s, looked_ms),
            )
        )
    return Plan(tuple(copies), tuple(lost.values()))


def judged(copy: Copy, staged: Sequence[StagedFile]) -> Copy:
    """The copy, once its records are there: if not one is missing, no tombstone is."""
    records = sum(s.facts.records for s in staged)
    is_whole = copy.start <= copy.position and records == copy.end - copy.start
    return replace(copy, may_miss_tombstones=False) if is_whole else copy


def too_late(standing: Standing, looked_ms: int) -> Trouble:
    """Why a copy that may miss tombstones is not taken."""
    row = standing.row
    since = in_duration(looked_ms - (row.mirrored_ms or looked_ms))
    kept = in_duration(standing.tombstones_ms or 0)
    return Trouble(
        standing.where,
        f"the copy was complete {since} ago, and Kafka keeps tombstones for {kept} "
        "(delete.retention.ms): it may have dropped some that were not copied, and deleted keys would "
        f"live on here. Delete the topic here and mirror it anew; {GO_ON}",
    )


def _loss(s: Standing, allow_loss: bool) -> Trouble | None:
    if s.kafka.end < s.position:
        return Trouble(
            s.where,
            f"its log in Kafka ends at {s.kafka.end}, the copy at {s.position}: Kafka has lost records "
            "which the copy has, and gives their offsets to others. Keep the copy with --release, and "
            "mirror the topic anew under another name with --prefix",
        )
    if s.kafka.start > s.position and not allow_loss:
        return Trouble(
            s.where,
            f"its log in Kafka starts at {s.kafka.start}, the copy ends at {s.position}: what lies "
            f"between was deleted before it was copied; {GO_ON}",
        )
    return None


def _is_late(s: Standing, looked_ms: int) -> bool:
    if s.tombstones_ms is None or s.row.mirrored_ms is None:
        return False
    return looked_ms - s.row.mirrored_ms > s.tombstones_ms
