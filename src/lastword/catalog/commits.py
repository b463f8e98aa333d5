"""What changes the log. Each function is one transaction, and nothing else changes it.

The story of an append, by what a crash after each step leaves:

1. files are written and synced          orphans, which `gc` finds; the log is as before
2. the transaction begins: the partitions are locked, offsets given out, rows inserted
                                         nothing: the database undoes it; orphans as after 1
3. it is committed                       the append, whole
4. the caller is told                    the append, whole; a writer who gives its id and version
                                         asks again and gets the first answer

Locks are taken in one order, writer → partitions by (topic, number), so two appends cannot wait
for each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam, literal, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from lastword.catalog import queries
from lastword.catalog.engine import Catalog, author
from lastword.catalog.schema import commit, file, partition, retired_file, topic, writer
from lastword.errors import (
    ConflictError,
    InvalidRecordError,
    OffsetOutOfRangeError,
    StaleWriterError,
    UnknownTopicError,
)
from lastword.model import (
    AppendedRange,
    AppendResult,
    PartitionRow,
    StagedFile,
    TopicRow,
    Writer,
)
from lastword.segments import ActiveSegment, rolls_before


def appended_before(catalog: Catalog, by: Writer) -> AppendResult | None:
    """What this writer's append of this version did, if it has been done."""
    with catalog.read() as tx:
        return _repeat(tx, by)


def commit_append(
    catalog: Catalog,
    topics: Sequence[TopicRow],
    staged: Sequence[StagedFile],
    now_ms: int,
    by: Writer | None = None,
) -> AppendResult:
    """Give out offsets to staged files, over all their partitions, all or nothing."""
    with catalog.write() as tx:
        if by is not None:
            _lock_writer(tx, by)
            if (done := _repeat(tx, by)) is not None:
                return done
        rows = _lock_partitions(tx, topics, staged)
        fresh = {t.id: queries.topic_row(tx, t.id, t.name) for t in topics}
        _refuse_null_keys(fresh, staged)
        _refuse_orphans(tx, staged)
        names = ",".join(sorted(t.name for t in topics))
        commit_id = record_commit(tx, "append", names, now_ms)
        ranges = []
        for key, row in rows.items():
            mine = [s for s in staged if (s.topic_id, s.partition) == key]
            ranges.append(_append_to(tx, fresh[row.topic_id], row, mine, commit_id))
        result = AppendResult(tuple(ranges))
        if by is not None:
            _remember(tx, by, result, now_ms)
        return result


def commit_roll(catalog: Catalog, row: TopicRow, number: int | None, now_ms: int) -> list[int]:
    """Close the active segment of one or all partitions; which were rolled (not the empty ones)."""
    which = partition.c.topic_id == row.id
    if number is not None:
        which = sa.and_(which, partition.c.partition == number)
    with catalog.write() as tx:
        found = tx.execute(
            select(partition).where(which).order_by(partition.c.partition).with_for_update()
        ).all()
        if not found:
            raise UnknownTopicError(row.name, number)
        rolled = [p for p in map(queries.partition_row, found) if p.active_first_ms is not None]
        for p in rolled:
            _update(tx, p, active_base=p.log_end, active_bytes=0, active_first_ms=None)
        if rolled:
            record_commit(tx, "roll", row.name, now_ms)
        return [p.partition for p in rolled]


def commit_log_start(
    catalog: Catalog, row: TopicRow, number: int, log_start: int, now_ms: int, why: str
) -> int:
    """Raise a partition's log start and retire the files wholly below it; how many those were.

    A log start that is higher already stays. At log end, an active segment with records is rolled.
    """
    with catalog.write() as tx:
        found = tx.execute(
            select(partition)
            .where(partition.c.topic_id == row.id, partition.c.partition == number)
            .with_for_update()
        ).one_or_none()
        if found is None:
            raise UnknownTopicError(row.name, number)
        p = queries.partition_row(found)
        if not queries.topic_row(tx, row.id, row.name).config.is_delete:
            raise ConflictError(
                f"the cleanup.policy of {row.name!r} was changed; nothing was dropped"
            )
        if log_start > p.log_end:
            raise OffsetOutOfRangeError(row.name, number, log_start, p.log_start, p.log_end)
        log_start = max(log_start, p.log_start)
        changes: dict[str, int | None] = {
            "log_start": log_start,
            "first_dirty": max(p.first_dirty, log_start),
        }
        if log_start == p.log_end and p.active_first_ms is not None:
            changes |= {"active_base": p.log_end, "active_bytes": 0, "active_first_ms": None}
        commit_id = record_commit(tx, "expire", row.name, now_ms, f"partition {number}: {why}")
        below = sa.and_(
            file.c.topic_id == row.id,
            file.c.partition == number,
            file.c.last_offset < log_start,
        )
        retired = retire(tx, below, commit_id, now_ms + row.config.file_delete_delay_ms)
        _update(tx, p, **changes)
        return retired


def commit_orphans(catalog: Catalog, orphans: Iterable[tuple[str, int]], now_ms: int) -> None:
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
            taken = tx.scalar(select(file.c.id).where(file.c.path == path))
            known = tx.scalar(select(retired_file.c.path).where(retired_file.c.path == path))
            if taken is None and known is None:
                tx.execute(
                    retired_file.insert().values(path=path, bytes=size, delete_after_ms=now_ms)
                )


def commit_deleted(catalog: Catalog, paths: Sequence[str]) -> None:
    """Forget retired files whose bytes are gone."""
    rows = [{"gone": path} for path in paths]
    if rows:
        with catalog.write() as tx:
            gone = bindparam("gone", type_=sa.Text)
            tx.execute(file.delete().where(file.c.path == gone, ~queries.LIVE), rows)
            tx.execute(retired_file.delete().where(retired_file.c.path == gone), rows)


def forget_writers(
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


def record_commit(
    tx: Connection, kind: str, topic_name: str | None, now_ms: int, detail: str = ""
) -> int:
    """The row that says what changed the log, when and by whom; its id."""
    row = commit.insert().values(
        kind=kind, topic=topic_name, created_ms=now_ms, by=author(), detail=detail
    )
    return int(tx.execute(row.returning(commit.c.id)).scalar_one())


def retire(
    tx: Connection, which: sa.ColumnElement[bool], commit_id: int, delete_after_ms: int
) -> int:
    """Take live files out of the log; their bytes may go after `delete_after_ms`."""
    which = sa.and_(queries.LIVE, which)
    rows = select(file.c.path, file.c.bytes, literal(delete_after_ms)).where(which)
    tx.execute(retired_file.insert().from_select(["path", "bytes", "delete_after_ms"], rows))
    return tx.execute(file.update().where(which).values(retired_commit=commit_id)).rowcount


def _append_to(
    tx: Connection, row: TopicRow, p: PartitionRow, staged: Sequence[StagedFile], commit_id: int
) -> AppendedRange:
    """Give the next offsets of one partition to its staged files, rolling where it is due."""
    active, log_end = ActiveSegment.of(p), p.log_end
    rows = []
    for facts in (s.facts for s in staged):
        if rolls_before(active, facts, row.config, seed=f"{row.id}/{p.partition}"):
            active = ActiveSegment(base=log_end, bytes=0, first_ms=None)
        active = active.grown_by(facts)
        rows.append(
            {
                "topic_id": row.id,
                "partition": p.partition,
                "segment_base": active.base,
                "base_offset": log_end,
                "last_offset": log_end + facts.last_delta,
                "records": facts.records,
                "bytes": facts.bytes,
                "tombstones": facts.tombstones,
                "null_keys": facts.null_keys,
                "first_ms": facts.first_ms,
                "max_ms": facts.max_ms,
                "footer_crc": facts.footer_crc,
                "path": facts.path,
                "added_commit": commit_id,
            }
        )
        log_end += facts.last_delta + 1
    tx.execute(file.insert(), rows)
    _update(
        tx,
        p,
        log_end=log_end,
        active_base=active.base,
        active_bytes=active.bytes,
        active_first_ms=active.first_ms,
    )
    return AppendedRange(row.name, p.partition, p.log_end, log_end - 1)


def _lock_partitions(
    tx: Connection, topics: Sequence[TopicRow], staged: Sequence[StagedFile]
) -> dict[tuple[int, int], PartitionRow]:
    wanted = {(s.topic_id, s.partition) for s in staged}
    found = tx.execute(
        select(partition)
        .where(tuple_(partition.c.topic_id, partition.c.partition).in_(sorted(wanted)))
        .order_by(partition.c.topic_id, partition.c.partition)
        .with_for_update()
    )
    rows = {(p.topic_id, p.partition): p for p in map(queries.partition_row, found)}
    if missing := wanted - rows.keys():
        topic_id, number = min(missing)
        name = next(t.name for t in topics if t.id == topic_id)
        is_there = tx.scalar(select(topic.c.id).where(topic.c.id == topic_id)) is not None
        raise UnknownTopicError(name, number if is_there else None)
    return rows


def _refuse_null_keys(topics: dict[int, TopicRow], staged: Sequence[StagedFile]) -> None:
    for s in staged:
        if s.facts.null_keys and topics[s.topic_id].config.is_compact:
            raise InvalidRecordError(
                f"topic {topics[s.topic_id].name!r} became compacted during the append, which "
                f"has {s.facts.null_keys} record(s) without a key; nothing was appended"
            )


def _refuse_orphans(tx: Connection, staged: Sequence[StagedFile]) -> None:
    paths = [s.facts.path for s in staged]
    condemned = tx.scalar(select(retired_file.c.path).where(retired_file.c.path.in_(paths)))
    if condemned is not None:
        raise ConflictError(
            f"{condemned} waited so long for its commit that gc took it for an orphan; "
            "nothing was appended, append again"
        )


def _lock_writer(tx: Connection, by: Writer) -> None:
    """Have the writer's row, and be the only one who has it."""
    dialect = postgresql if tx.dialect.name == "postgresql" else sqlite
    new = {"version": -1, "result": "[]", "appended_ms": 0, "is_session": by.is_session}
    tx.execute(
        dialect.insert(writer)
        .values(writer_id=by.id, topic_id=by.topic_id, **new)
        .on_conflict_do_nothing()
    )
    tx.execute(select(writer).where(_is(by)).with_for_update()).one()


def _repeat(tx: Connection, by: Writer) -> AppendResult | None:
    row = tx.execute(select(writer).where(_is(by))).one_or_none()
    if row is None or row.version < by.version:
        return None
    if row.version > by.version:
        raise StaleWriterError(by.id, by.version, row.version)
    ranges = (AppendedRange(*r) for r in json.loads(row.result))
    return AppendResult(tuple(ranges), is_repeat=True)


def _remember(tx: Connection, by: Writer, result: AppendResult, now_ms: int) -> None:
    tx.execute(
        writer.update()
        .where(_is(by))
        .values(version=by.version, result=json.dumps(result.ranges), appended_ms=now_ms)
    )


def _is(by: Writer) -> sa.ColumnElement[bool]:
    return sa.and_(writer.c.writer_id == by.id, writer.c.topic_id == by.topic_id)


def _update(tx: Connection, p: PartitionRow, **values: int | None) -> None:
    tx.execute(
        partition.update()
        .where(partition.c.topic_id == p.topic_id, partition.c.partition == p.partition)
        .values(**values)
    )
