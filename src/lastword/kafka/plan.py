"""What a round of a mirror copies, and what it must not go on with: pure.

A partition is copied from its log end here to Kafka's. Whatever lies between but is no longer in Kafka
is a gap if Kafka compacted it away, and a loss if Kafka's log starts beyond it, or has been cut.

Tombstones are the delicate part. One that came after the copy last had everything stays in Kafka for
`delete.retention.ms` at the least. A mirror that has read later than that may have copied a value before,
and find neither the value nor the tombstone that deleted it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from lastword.kafka.cluster import Bounds
from lastword.model import Copy, PartitionRow, StagedFile, TopicRow
from lastword.words import in_duration

K = TypeVar("K")

MOST_OFFSETS = 5_000_000  # that a round moves, unless it is told otherwise
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

    def ending_at(self, end: int) -> Standing:
        """The same, without what has come to Kafka since."""
        end = min(self.kafka.end, max(end, self.row.log_end))
        return replace(self, kafka=Bounds(self.kafka.start, end))

    @property
    def lag(self) -> int:
        return max(0, self.kafka.end - max(self.position, self.kafka.start))


class Times(NamedTuple):
    """When a round has looked at both sides, and when it had read everything."""

    looked_ms: int
    read_ms: int

    def incomplete_ms(self, s: Standing) -> int:
        """How long ago, when it was read, the copy last had everything."""
        return self.read_ms - (self.looked_ms if s.row.mirrored_ms is None else s.row.mirrored_ms)


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
    fits = portions({s.where: s.lag for s in sound}, most_offsets)
    copies = []
    for s in sound:
        if s.kafka.end <= s.row.log_end:
            continue
        start = max(s.position, s.kafka.start)
        end = start + fits[s.where]
        is_all = end == s.kafka.end
        copies.append(
            Copy(
                s.topic.id,
                s.row.partition,
                position=s.row.log_end,
                start=start,
                end=end,
                mirrored_ms=looked_ms if is_all else s.row.mirrored_ms or looked_ms,
                may_miss_tombstones=start > s.position,
            )
        )
    return Plan(tuple(copies), tuple(lost.values()))


def portions(left: Mapping[K, int], most: int) -> dict[K, int]:
    """How much of each is taken, so that it is about `most` in all; each gets on by one at least."""
    total = sum(left.values())
    if total <= most:
        return dict(left)
    return {key: min(some, max(1, most * some // total)) for key, some in left.items()}


def judged(copy: Copy, s: Standing, staged: Sequence[StagedFile], since: Times) -> Copy:
    """The copy, once its records are there: whether a tombstone may be missing among them."""
    records = sum(file.facts.records for file in staged)
    is_whole = copy.start == s.position and records == copy.end - copy.start
    is_late = s.tombstones_ms is not None and since.incomplete_ms(s) > s.tombstones_ms
    is_lossy = not is_whole and (is_late or copy.may_miss_tombstones)
    return replace(copy, may_miss_tombstones=is_lossy)


def too_late(s: Standing, since: Times) -> Trouble:
    """Why a copy that may miss tombstones is not taken."""
    return Trouble(
        s.where,
        f"the copy was complete {in_duration(since.incomplete_ms(s))} ago, and Kafka keeps "
        f"tombstones for {in_duration(s.tombstones_ms or 0)} (delete.retention.ms): it may have dropped "
        "some that were not copied, and deleted keys would live on here. Delete the topic here and "
        "mirror it anew, with a higher delete.retention.ms in Kafka if the first copy takes so long; "
        f"{GO_ON}",
    )


def _loss(s: Standing, allow_loss: bool) -> Trouble | None:
    if s.kafka.end < s.position:
        return Trouble(
            s.where,
            f"its log in Kafka ends at {s.kafka.end}, the copy at {s.position}: Kafka has lost records "
            "which the copy has, and gives their offsets to others. Keep the copy with "
            "'lastword topics release', and mirror the topic anew under another name with --prefix",
        )
    if s.kafka.start > s.position and not allow_loss:
        return Trouble(
            s.where,
            f"its log in Kafka starts at {s.kafka.start}, the copy ends at {s.position}: what lies "
            f"between was deleted before it was copied; {GO_ON}",
        )
    return None
