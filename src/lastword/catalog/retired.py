"""Files on their way out: retired, condemned as orphans, and forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import sqlalchemy as sa
from sqlalchemy import literal, select
from sqlalchemy.engine import Connection

from lastword.catalog.engine import Catalog, insert_if_new
from lastword.catalog.queries import LIVE
from lastword.catalog.schema import condemned_file, file, partition, retired_file
from lastword.errors import ConflictError

PATHS_AT_ONCE = 1_000


def retire(
    tx: Connection, which: sa.ColumnElement[bool], commit_id: int, delete_after_ms: int
) -> int:
    """Take live files out of the log; their bytes may go after `delete_after_ms`."""
    which = sa.and_(LIVE, which)
    rows = select(file.c.path, file.c.bytes, literal(delete_after_ms)).where(which)
    tx.execute(retired_file.insert().from_select(["path", "bytes", "delete_after_ms"], rows))
    return tx.execute(file.update().where(which).values(retired_commit=commit_id)).rowcount


def refuse_condemned(tx: Connection, paths: Sequence[str]) -> None:
    """Raise if gc has taken one of these files for an orphan."""
    for some in at_most(paths):
        condemned = tx.scalar(select(condemned_file.c.path).where(condemned_file.c.path.in_(some)))
        if condemned is not None:
            raise ConflictError(
                f"{condemned} waited so long for its commit that gc took it for an orphan; "
                "nothing was changed, try again"
            )


def condemn_orphans(catalog: Catalog, orphans: Iterable[tuple[str, int]], now_ms: int) -> None:
    """Condemn staged files that no commit took: an append that still comes with one is refused.

    With all partitions locked no append is half-way, so a file that is not in the log now never
    will be.
    """
    with catalog.write() as tx:
        tx.execute(
            select(partition.c.topic_id)
            .order_by(partition.c.topic_id, partition.c.partition)
            .with_for_update()
        ).all()
        for path, size in orphans:
            if tx.scalar(select(file.c.id).where(file.c.path == path)) is None:
                insert_if_new(tx, condemned_file, path=path, condemned_ms=now_ms)
                insert_if_new(tx, retired_file, path=path, bytes=size, delete_after_ms=now_ms)


def hasten(catalog: Catalog, prefixes: Sequence[str], now_ms: int) -> set[str]:
    """Let the bytes of retired files below these folders go now; which files these are."""
    found: set[str] = set()
    with catalog.write() as tx:
        for prefix in prefixes:
            below = retired_file.c.path.startswith(prefix, autoescape=True)
            rows = select(retired_file.c.path).where(below).order_by(retired_file.c.path)
            found |= set(tx.scalars(rows.with_for_update()))
            tx.execute(retired_file.update().where(below).values(delete_after_ms=now_ms))
    return found


def forget(catalog: Catalog, paths: Sequence[str]) -> None:
    """Forget retired files whose bytes are gone."""
    for some in at_most(paths):
        with catalog.write() as tx:
            its = select(file.c.topic_id, file.c.partition).where(file.c.path.in_(some))
            tx.execute(
                select(partition.c.topic_id)
                .where(sa.tuple_(partition.c.topic_id, partition.c.partition).in_(its))
                .order_by(partition.c.topic_id, partition.c.partition)
                .with_for_update()
            ).all()  # as the deletion of a topic does, before its files go
            tx.execute(file.delete().where(file.c.path.in_(some), ~LIVE))
            tx.execute(retired_file.delete().where(retired_file.c.path.in_(some)))


def at_most(paths: Sequence[str], count: int = PATHS_AT_ONCE) -> Iterator[Sequence[str]]:
    """The paths in portions: databases limit the parameters of a statement."""
    for start in range(0, len(paths), count):
        yield paths[start : start + count]
