"""Exactly-once writers: the last version that each has appended, and what became of it."""

from __future__ import annotations

import json

import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.engine import Connection

from lastword.catalog.engine import Catalog, insert_if_new
from lastword.catalog.schema import writer
from lastword.errors import StaleWriterError
from lastword.model import AppendedRange, AppendResult, Writer


def appended_before(catalog: Catalog, by: Writer) -> AppendResult | None:
    """What this writer's append of this version did, if it has been done."""
    with catalog.read() as tx:
        return repeat_of(tx, by)


def repeat_of(tx: Connection, by: Writer) -> AppendResult | None:
    """The same, inside a transaction. StaleWriterError if the writer has gone further."""
    row = tx.execute(select(writer).where(_is(by))).one_or_none()
    if row is None or row.version < by.version:
        return None
    if row.version > by.version:
        raise StaleWriterError(by.id, by.version, row.version)
    ranges = (AppendedRange(*r) for r in json.loads(row.result))
    return AppendResult(tuple(ranges), is_repeat=True)


def lock(tx: Connection, by: Writer) -> None:
    """Have the writer's row, and be the only one who has it."""
    new = {"version": -1, "result": "[]", "appended_ms": 0, "is_session": by.is_session}
    while True:  # gc, or the deletion of its topic, may forget the row between the two
        insert_if_new(tx, writer, writer_id=by.id, topic_id=by.topic_id, **new)
        if tx.execute(select(writer).where(_is(by)).with_for_update()).first() is not None:
            return


def give_up(catalog: Catalog, by: Writer) -> AppendResult | None:
    """What this version's append did; if nothing, it never will, even if it is still under way."""
    with catalog.write() as tx:
        lock(tx, by)
        done = repeat_of(tx, by)
        if done is None:
            remember(tx, by, AppendResult(()), now_ms=0)
        return done


def remember(tx: Connection, by: Writer, result: AppendResult, now_ms: int) -> None:
    """Note what the writer's append did."""
    tx.execute(
        writer.update()
        .where(_is(by))
        .values(version=by.version, result=json.dumps(result.ranges), appended_ms=now_ms)
    )


def forget_sessions(
    catalog: Catalog, *, writer_id: str | None = None, before_ms: int | None = None
) -> int:
    """Forget a producer's own id, or all such ids that were last used before a time."""
    doomed = writer.delete().where(writer.c.is_session.is_(True))
    if writer_id is not None:
        doomed = doomed.where(writer.c.writer_id == writer_id)
    if before_ms is not None:
        doomed = doomed.where(writer.c.appended_ms < before_ms)
    with catalog.write() as tx:
        return tx.execute(doomed).rowcount


def _is(by: Writer) -> sa.ColumnElement[bool]:
    return sa.and_(writer.c.writer_id == by.id, writer.c.topic_id == by.topic_id)
