"""Consumer groups: who consumes, which member has which partition, and what was committed.

A member is alive until its lease ends, and what it claimed is its own as long. So a member that is
slow to notice that it was taken for dead cannot commit over the one that took its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import and_, select, tuple_
from sqlalchemy.engine import Connection

from lastword.catalog.engine import Catalog, author, lock_named
from lastword.catalog.schema import (
    consumer_offset,
    group_claim,
    group_member,
    partition,
    topic,
)
from lastword.clock import Clock
from lastword.errors import ConflictError, UnknownTopicError
from lastword.sharing import Place, fair_shares


@dataclass(frozen=True)
class Lease:
    """How long a member lives on without a sign of life.

    It counts from when the locks are had, for which the wait may be long; but who is dead by then is
    not dead if it was alive when the wait began, for it may have waited for the same lock.
    """

    clock: Clock
    timeout_ms: int

    def until_ms(self) -> int:
        return self.clock() + self.timeout_ms


@dataclass(frozen=True)
class Committed:
    """How far a group has read a partition: all below."""

    topic: str
    partition: int
    offset: int
    committed_ms: int


@dataclass(frozen=True)
class Member:
    """A process that consumes for a group, and what it has claimed."""

    id: str
    by: str
    until_ms: int
    partitions: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Claim:
    """A partition that is a member's; `is_new` if it was not all the time since it last asked."""

    committed: int | None
    is_new: bool


def share(
    catalog: Catalog,
    group: str,
    member_id: str,
    topic_ids: Collection[int],
    lease: Lease,
) -> dict[Place, Claim]:
    """Be a member for a while longer, and take a fair share: what is ours now."""
    asked_ms = lease.clock()
    with catalog.write() as tx:
        lock_named(tx, f"group {group}")
        rows = tx.execute(select(group_member).where(group_member.c.group_id == group)).all()
        consumed = {topic_id for row in rows for topic_id in row.topics} | {*topic_ids}
        places = _locked(tx, partition.c.topic_id.in_(consumed))
        _be_member(tx, group, member_id, sorted(topic_ids), lease.until_ms())
        _forget_dead(tx, group, asked_ms)
        members = {r.member_id: frozenset(r.topics) for r in rows if r.until_ms > asked_ms}
        members[member_id] = frozenset(topic_ids)
        held = _claims(tx, group)
        shares = fair_shares(places, members, held)
        mine = {place for place, member in shares.items() if member == member_id}
        extra = [p for p, member in held.items() if member == member_id and p not in mine]
        tx.execute(group_claim.delete().where(_of(group), _among(group_claim, extra)))
        new = sorted(place for place in mine if place not in held)
        _insert(tx, group_claim, new, lambda _: {"group_id": group, "member_id": member_id})
        committed = _committed(tx, group)
    ours = sorted({*new, *(p for p in mine if held.get(p) == member_id)})
    return {place: Claim(committed.get(place), place in new) for place in ours}


def renew(catalog: Catalog, group: str, member_id: str, lease: Lease) -> bool:
    """Stay a member for a while longer; False if it was taken for dead."""
    its = group_member.update().where(_is_member(group, member_id))
    with catalog.write() as tx:
        lock_named(tx, f"group {group}")
        return tx.execute(its.values(until_ms=lease.until_ms())).rowcount == 1


def leave(catalog: Catalog, group: str, member_id: str) -> None:
    """Let go of everything."""
    with catalog.write() as tx:
        lock_named(tx, f"group {group}")
        _lock_its(tx, group)
        tx.execute(group_claim.delete().where(_of(group), group_claim.c.member_id == member_id))
        tx.execute(group_member.delete().where(_is_member(group, member_id)))


def commit(
    catalog: Catalog, group: str, member_id: str, offsets: Mapping[Place, int], now_ms: int
) -> None:
    """Note that all below these offsets was read; ConflictError if a partition is another's now."""
    with catalog.write() as tx:
        lock_named(tx, f"group {group}")
        claims = _claims(tx, group)
        lost = sorted(place for place in offsets if claims.get(place) != member_id)
        if lost:
            raise ConflictError(
                f"group {group!r}: {len(lost)} partition(s) were taken over by another member, for "
                "this one's lease has ended; nothing was committed. The next poll goes on with "
                "what is still its own"
            )
        _store(tx, group, offsets, now_ms)


def committed(catalog: Catalog, group: str) -> list[Committed]:
    """What a group has committed, in order."""
    query = (
        select(consumer_offset, topic.c.name)
        .join(topic, topic.c.id == consumer_offset.c.topic_id)
        .where(consumer_offset.c.group_id == group)
        .order_by(topic.c.name, consumer_offset.c.partition)
    )
    with catalog.read() as tx:
        return [
            Committed(row.name, row.partition, row.committed, row.committed_ms)
            for row in tx.execute(query)
        ]


def names(catalog: Catalog, now_ms: int) -> list[str]:
    """All groups that have living members, or have committed anything."""
    alive = select(group_member.c.group_id).where(group_member.c.until_ms > now_ms)
    with catalog.read() as tx:
        found = {*tx.scalars(select(consumer_offset.c.group_id).distinct())}
        found |= {*tx.scalars(alive.distinct())}
    return sorted(found)


def readers_of(catalog: Catalog, topic_id: int) -> list[str]:
    """The groups that have committed anything of a topic."""
    its = select(consumer_offset.c.group_id).where(consumer_offset.c.topic_id == topic_id)
    with catalog.read() as tx:
        return sorted(set(tx.scalars(its)))


def members(catalog: Catalog, group: str, now_ms: int) -> list[Member]:
    """The members of a group that are alive."""
    claims = select(group_claim, topic.c.name).join(topic, topic.c.id == group_claim.c.topic_id)
    alive = and_(group_member.c.group_id == group, group_member.c.until_ms > now_ms)
    with catalog.read() as tx:
        rows = tx.execute(select(group_member).where(alive)).all()
        claimed = defaultdict(list)
        for row in tx.execute(
            claims.where(_of(group)).order_by(topic.c.name, group_claim.c.partition)
        ):
            claimed[row.member_id].append((row.name, row.partition))
    return sorted(
        (Member(r.member_id, r.by, r.until_ms, tuple(claimed[r.member_id])) for r in rows),
        key=lambda m: m.id,
    )


def note(catalog: Catalog, group: str, offsets: Mapping[Place, int], now_ms: int) -> None:
    """Note that all below these offsets was read, by a stream, which claims nothing."""
    with catalog.write() as tx:
        lock_named(tx, f"group {group}")
        _store(tx, group, offsets, now_ms)


def refuse_living(catalog: Catalog, group: str, now_ms: int) -> None:
    """ConflictError if a group has members."""
    with catalog.read() as tx:
        _refuse_living(tx, group, now_ms)


def reset(catalog: Catalog, group: str, offsets: Mapping[Place, int], now_ms: int) -> None:
    """Set what is committed; ConflictError if the group has members."""
    with catalog.write() as tx:
        lock_named(tx, f"group {group}")
        _refuse_living(tx, group, now_ms)
        _lock_its(tx, group, offsets)
        _store(tx, group, offsets, now_ms)
        _forget_dead(tx, group, now_ms)  # one that wakes up shall not undo it


def delete(catalog: Catalog, group: str, now_ms: int) -> None:
    """Forget a group; ConflictError if it has members."""
    with catalog.write() as tx:
        lock_named(tx, f"group {group}")
        _refuse_living(tx, group, now_ms)
        _lock_its(tx, group)
        for table in (consumer_offset, group_claim, group_member):
            tx.execute(table.delete().where(table.c.group_id == group))


def _be_member(
    tx: Connection, group: str, member_id: str, topic_ids: list[int], until_ms: int
) -> None:
    row = {"by": author(), "topics": topic_ids, "until_ms": until_ms}
    known = group_member.update().where(_is_member(group, member_id)).values(**row)
    if tx.execute(known).rowcount == 0:
        tx.execute(group_member.insert().values(group_id=group, member_id=member_id, **row))


def _forget_dead(tx: Connection, group: str, now_ms: int) -> None:
    is_dead = and_(group_member.c.group_id == group, group_member.c.until_ms <= now_ms)
    tx.execute(group_member.delete().where(is_dead))
    alive = select(group_member.c.member_id).where(group_member.c.group_id == group)
    tx.execute(group_claim.delete().where(_of(group), group_claim.c.member_id.not_in(alive)))


def _locked(tx: Connection, which: sa.ColumnElement[bool]) -> list[Place]:
    """These partitions, which stay as long as the transaction does.

    Their rows come before those of groups in the order of all locks, for a topic that is deleted
    takes both with it.
    """
    p = partition.c
    rows = select(p.topic_id, p.partition).where(which).order_by(p.topic_id, p.partition)
    found = tx.execute(rows.with_for_update(read=True, key_share=True))
    return [(row.topic_id, row.partition) for row in found]


def _lock_its(tx: Connection, group: str, more: Collection[Place] = ()) -> None:
    """Lock all partitions that a group has claimed or committed, and these."""
    _locked(tx, _among(partition, {*_claims(tx, group), *_committed(tx, group), *more}))


def _claims(tx: Connection, group: str) -> dict[Place, str]:
    rows = tx.execute(select(group_claim).where(_of(group)))
    return {(row.topic_id, row.partition): row.member_id for row in rows}


def _committed(tx: Connection, group: str) -> dict[Place, int]:
    rows = tx.execute(select(consumer_offset).where(consumer_offset.c.group_id == group))
    return {(row.topic_id, row.partition): row.committed for row in rows}


def _store(tx: Connection, group: str, offsets: Mapping[Place, int], now_ms: int) -> None:
    places = sorted(offsets)
    if _locked(tx, _among(partition, places)) != places:
        raise UnknownTopicError("a topic of the group")  # deleted meanwhile
    its = and_(consumer_offset.c.group_id == group, _among(consumer_offset, places))
    tx.execute(consumer_offset.delete().where(its))
    row = {"group_id": group, "committed_ms": now_ms}
    _insert(tx, consumer_offset, places, lambda place: {**row, "committed": offsets[place]})


def _insert(
    tx: Connection,
    table: sa.Table,
    places: Sequence[Place],
    rest: Callable[[Place], Mapping[str, object]],
) -> None:
    rows = [{"topic_id": p[0], "partition": p[1], **rest(p)} for p in places]
    if rows:
        tx.execute(table.insert(), rows)


def _refuse_living(tx: Connection, group: str, now_ms: int) -> None:
    alive = and_(group_member.c.group_id == group, group_member.c.until_ms > now_ms)
    members = tx.scalars(select(group_member.c.by).where(alive).order_by(group_member.c.by)).all()
    if members:
        raise ConflictError(
            f"group {group!r} has members ({', '.join(members)}); stop them first, or wait until "
            "their leases end"
        )


def _is_member(group: str, member_id: str) -> sa.ColumnElement[bool]:
    return and_(group_member.c.group_id == group, group_member.c.member_id == member_id)


def _of(group: str) -> sa.ColumnElement[bool]:
    return group_claim.c.group_id == group


def _among(table: sa.Table, places: Collection[Place]) -> sa.ColumnElement[bool]:
    return tuple_(table.c.topic_id, table.c.partition).in_(list(places))
