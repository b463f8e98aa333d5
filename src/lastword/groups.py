"""A consumer group: what it has committed, how far it is behind, who its members are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lastword.catalog import groups, queries
from lastword.catalog.groups import Member
from lastword.errors import (
    InvalidArgumentError,
    OffsetOutOfRangeError,
    UnknownGroupError,
    UnknownTopicError,
)
from lastword.feed import Lag, lag_of
from lastword.foundation import Foundation
from lastword.log.read import first_offset_since
from lastword.model import PartitionRow, TopicRow, valid_group_name


@dataclass(frozen=True)
class GroupPartition:
    """What a group has committed of a partition; None if nothing."""

    topic: str
    partition: int
    committed: int | None
    committed_ms: int | None
    lag: Lag
    member: str | None = None  # who has claimed it


@dataclass(frozen=True)
class GroupDescription:
    """A group as `describe` shows it."""

    name: str
    members: tuple[Member, ...]
    partitions: tuple[GroupPartition, ...]


@dataclass(frozen=True)
class ResetOffset:
    """A committed offset before and after a reset."""

    topic: str
    partition: int
    before: int | None
    after: int


class Group:
    """A handle on one consumer group of a store."""

    def __init__(self, base: Foundation, name: str) -> None:
        self._base, self.name = base, valid_group_name(name)

    def __repr__(self) -> str:
        return f"Group({self.name!r})"

    def describe(self) -> GroupDescription:
        """Members, committed offsets and lag."""
        catalog = self._base.catalog
        members = groups.members(catalog, self.name, self._base.clock())
        committed = {(c.topic, c.partition): c for c in groups.committed(catalog, self.name)}
        holders = {where: m.id for m in members for where in m.partitions}
        if not members and not committed:
            raise UnknownGroupError(self.name, groups.names(catalog, self._base.clock()))
        found = []
        for name in sorted({topic for topic, _ in (*committed, *holders)}):
            topic = queries.topic_named(catalog, name)
            for row in queries.partitions(catalog, topic):
                where = (name, row.partition)
                its = committed.get(where)
                position = row.log_start if its is None else its.offset
                found.append(
                    GroupPartition(
                        *where,
                        None if its is None else its.offset,
                        None if its is None else its.committed_ms,
                        lag_of(self._base, topic, row.partition, position),
                        holders.get(where),
                    )
                )
        return GroupDescription(self.name, tuple(members), tuple(found))

    def reset(
        self,
        topic: str,
        to: int | str | datetime,
        *,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> list[ResetOffset]:
        """Set what the group has committed of a topic; it must have no members.

        `to`: 'earliest', 'latest', an offset, or a time (with a zone): the first record since.
        """
        catalog, of = self._base.catalog, queries.topic_named(self._base.catalog, topic)
        rows = queries.partitions(catalog, of)
        if partition is not None and not 0 <= partition < len(rows):
            raise UnknownTopicError(topic, partition)
        wanted = [row for row in rows if partition in (None, row.partition)]
        after = {(of.id, row.partition): self._offset(of, row, to) for row in wanted}
        before = {
            c.partition: c.offset for c in groups.committed(catalog, self.name) if c.topic == topic
        }
        groups.refuse_living(catalog, self.name, self._base.clock())
        if not dry_run:
            groups.reset(catalog, self.name, after, self._base.clock())
        return [
            ResetOffset(topic, number, before.get(number), offset)
            for (_, number), offset in after.items()
        ]

    def delete(self) -> None:
        """Forget what it has committed; it must have no members."""
        known = groups.names(self._base.catalog, self._base.clock())
        if self.name not in known:
            raise UnknownGroupError(self.name, known)
        groups.delete(self._base.catalog, self.name, self._base.clock())

    def _offset(self, topic: TopicRow, row: PartitionRow, to: int | str | datetime) -> int:
        """Where a partition is reset to."""
        match to:
            case "earliest":
                return row.log_start
            case "latest":
                return row.log_end
            case int() if row.log_start <= to <= row.log_end:
                return to
            case int():
                bounds = (row.log_start, row.log_end)
                raise OffsetOutOfRangeError(topic.name, row.partition, to, *bounds)
            case datetime() if to.tzinfo is not None:
                where = (self._base.catalog, self._base.root, topic, row.partition)
                found = first_offset_since(*where, int(to.timestamp() * 1000))
                return row.log_end if found is None else found
        raise InvalidArgumentError(
            f"a reset goes to 'earliest', 'latest', an offset or a time with a zone, not {to!r}"
        )
