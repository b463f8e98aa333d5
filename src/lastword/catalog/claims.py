"""Cleaners that are at work, and the partitions they have claimed, so that no two do the same work.

A claim is a short lease: kept while the cleaner's heart beats, free again when it is dead.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import and_, func, or_, select
from sqlalchemy.engine import Connection

from lastword.catalog.engine import Catalog, author, insert_if_new
from lastword.catalog.schema import cleaner, partition
from lastword.clock import Clock
from lastword.passes import PartitionState

CLAIM_MS = 60_000
_FORGET_CLEANERS_MS = 7 * 86_400_000


def claim(catalog: Catalog, state: PartitionState, cleaner_id: str, clock: Clock) -> bool:
    """Take the lease on a partition; False if another cleaner has it, or it is gone."""
    p, row, asked_ms = partition.c, state.row, clock()
    its = and_(p.topic_id == row.topic_id, p.partition == row.partition)
    free = or_(p.claim.is_(None), p.claim == cleaner_id, p.claim_until_ms <= asked_ms)
    with catalog.write() as tx:  # for which the wait may be long: the lease begins now
        lease = {"claim": cleaner_id, "claim_until_ms": clock() + CLAIM_MS}
        taken = tx.execute(partition.update().where(its, free).values(lease))
    return taken.rowcount == 1


def renew(catalog: Catalog, cleaner_id: str, clock: Clock) -> None:
    """Be seen, and keep all leases a while longer."""
    with catalog.write() as tx:
        claimed = _locked_claims(tx, cleaner_id)
        now_ms = clock()
        tx.execute(partition.update().where(claimed).values(claim_until_ms=now_ms + CLAIM_MS))
        tx.execute(cleaner.update().where(cleaner.c.id == cleaner_id).values(seen_ms=now_ms))


def release(catalog: Catalog, cleaner_id: str) -> None:
    """Give all leases back."""
    with catalog.write() as tx:
        claimed = _locked_claims(tx, cleaner_id)
        tx.execute(partition.update().where(claimed).values(claim=None, claim_until_ms=None))


def start_cleaner(catalog: Catalog, cleaner_id: str, now_ms: int) -> None:
    """Say that a cleaner is at work; forget those that ended long ago."""
    with catalog.write() as tx:
        tx.execute(cleaner.delete().where(cleaner.c.seen_ms < now_ms - _FORGET_CLEANERS_MS))
        insert_if_new(tx, cleaner, id=cleaner_id, by=author(), started_ms=now_ms, seen_ms=now_ms)


def stop_cleaner(catalog: Catalog, cleaner_id: str, now_ms: int) -> None:
    """Say that it has ended as it should."""
    release(catalog, cleaner_id)
    with catalog.write() as tx:
        ended = {"seen_ms": now_ms, "stopped_ms": now_ms}
        tx.execute(cleaner.update().where(cleaner.c.id == cleaner_id).values(ended))


def cleaners_seen(catalog: Catalog, now_ms: int) -> tuple[int | None, int]:
    """When any cleaner was last seen, and how many vanished lately without having stopped."""
    is_dead = and_(
        cleaner.c.stopped_ms.is_(None),
        cleaner.c.seen_ms < now_ms - CLAIM_MS,
        cleaner.c.seen_ms >= now_ms - _FORGET_CLEANERS_MS,
    )
    with catalog.read() as tx:
        seen_ms = tx.scalar(select(func.max(cleaner.c.seen_ms)))
        dead = tx.scalar(select(func.count()).select_from(cleaner).where(is_dead))
    return seen_ms, int(dead or 0)


def _locked_claims(tx: Connection, cleaner_id: str) -> sa.ColumnElement[bool]:
    """The partitions that a cleaner has claimed, locked in the order of all locks."""
    claimed = partition.c.claim == cleaner_id
    ordered = select(partition).where(claimed)
    ordered = ordered.order_by(partition.c.topic_id, partition.c.partition)
    tx.execute(ordered.with_for_update()).all()
    return claimed
