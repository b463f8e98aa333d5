"""What the cleaner asks and notes: states of partitions, passes, failures.

None of it changes the log; `commits.commit_clean` does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from operator import attrgetter
from typing import Any

from sqlalchemy import Row, and_, func, select
from sqlalchemy.engine import Connection

from lastword.catalog import queries
from lastword.catalog.engine import Catalog
from lastword.catalog.schema import (
    consumer_offset,
    group_member,
    partition,
    pass_,
    pass_files,
    topic,
)
from lastword.model import LogFile, TopicRow
from lastword.passes import FileChange, Horizon, PartitionState, Pass, Position

_FIRST_RETRY_MS, _LAST_RETRY_MS = 30_000, 3_600_000
_MOST_OF_A_ROUND = 20_000  # passes, those of other cleaners in between included
_FACTS = tuple(f.name for f in fields(Pass) if f.name not in ("topic", "jobs"))
_OF_A_PASS = attrgetter(*_FACTS)


def states(
    catalog: Catalog, topics: Sequence[TopicRow], active_since_ms: int
) -> list[PartitionState]:
    """Every partition of these topics, at one moment.

    Groups that have not committed since `active_since_ms` do not count.
    """
    by_id = {t.id: t for t in topics}
    with catalog.read() as tx:
        rows = tx.execute(
            select(partition)
            .where(partition.c.topic_id.in_(by_id))
            .order_by(partition.c.topic_id, partition.c.partition)
        ).all()
        segments = queries.segments_of(tx, list(by_id))
        horizons = _horizons(tx, list(by_id))
        groups = positions(tx, list(by_id), active_since_ms)
    found = []
    for row in map(queries.partition_row, rows):
        where = (row.topic_id, row.partition)
        found.append(
            PartitionState(
                by_id[row.topic_id],
                row,
                tuple(segments.get(where, ())),
                tuple(horizons.get(where, ())),
                groups.get(where, ()),
                active_since_ms,
            )
        )
    return found


def covered_files(catalog: Catalog, state: PartitionState, end: int) -> list[LogFile] | None:
    """The live files below `end`; None if the partition is no longer as in `state`."""
    now, files = queries.read_plan(catalog, state.topic, state.row.partition, (0, end))
    is_same = (now.log_start, now.first_dirty) == (state.row.log_start, state.row.first_dirty)
    return files if is_same and end <= now.active_base else None


def record_failure(
    catalog: Catalog, topic_id: int, failed: Pass, now_ms: int, *, is_fault: bool = True
) -> int:
    """Note a failed pass, and when its partition may be tried again: each time later; its id.

    Not a fault: it was abandoned, because others changed the log, and may be tried at once.
    """
    with catalog.write() as tx:
        its = and_(partition.c.topic_id == topic_id, partition.c.partition == failed.partition)
        failures = tx.scalar(select(partition.c.failures).where(its).with_for_update())
        if failures is None:
            return 0  # deleted meanwhile
        pass_id = insert_pass(tx, topic_id, failed, commit_id=None)
        if not is_fault:
            return pass_id
        delay_ms = min(_LAST_RETRY_MS, _FIRST_RETRY_MS << min(failures, 20))
        retry = {
            "failures": failures + 1,
            "failure": failed.error,
            "retry_after_ms": now_ms + delay_ms,
        }
        tx.execute(partition.update().where(its).values(retry))
        return pass_id


def insert_pass(tx: Connection, topic_id: int, done: Pass, commit_id: int | None) -> int:
    """The pass's row; its id."""
    values = asdict(done)
    for name in ("topic", "id"):
        del values[name]
    values |= {"topic_id": topic_id, "commit_id": commit_id, "jobs": list(done.jobs)}
    return int(tx.execute(pass_.insert().values(values).returning(pass_.c.id)).scalar_one())


def note_files(tx: Connection, pass_id: int, changes: Sequence[FileChange]) -> None:
    """What the pass did with each file that it changed."""
    if changes:
        files = [asdict(change) for change in changes]
        tx.execute(pass_files.insert().values(pass_id=pass_id, files=files))


def pass_with_files(catalog: Catalog, pass_id: int) -> tuple[Pass, list[FileChange]] | None:
    """A pass, and what it did with each file that it changed."""
    query = select(pass_, topic.c.name).join(topic, topic.c.id == pass_.c.topic_id)
    with catalog.read() as tx:
        row = tx.execute(query.where(pass_.c.id == pass_id)).one_or_none()
        its = select(pass_files.c.files).where(pass_files.c.pass_id == pass_id)
        files = tx.scalar(its) or []
    return None if row is None else (_pass(row), [FileChange(**f) for f in files])


def passes(
    catalog: Catalog,
    topic_ids: Iterable[int] | None = None,
    *,
    number: int | None = None,
    limit: int | None = None,
    only_done: bool = False,
) -> list[Pass]:
    """Passes, newest first; `only_done`: those that were committed."""
    query = select(pass_, topic.c.name).join(topic, topic.c.id == pass_.c.topic_id)
    if topic_ids is not None:
        query = query.where(pass_.c.topic_id.in_(list(topic_ids)))
    if number is not None:
        query = query.where(pass_.c.partition == number)
    if only_done:
        query = query.where(pass_.c.commit_id.is_not(None))
    with catalog.read() as tx:
        return [_pass(row) for row in tx.execute(query.order_by(pass_.c.id.desc()).limit(limit))]


def sums_after(catalog: Catalog, pass_id: int) -> Iterator[Row[Any]]:
    """What there is to add up of the passes with higher ids, in order."""
    names = ("id", "seconds", "removed", "error")
    sizes = ("bytes_in", "bytes_out", "bytes_read", "bytes_written")
    query = select(*(pass_.c[name] for name in (*names, *sizes)))
    query = query.where(pass_.c.id > pass_id).order_by(pass_.c.id)
    with catalog.read() as tx:
        yield from tx.execute(query.execution_options(yield_per=1_000))


def last_passes(catalog: Catalog) -> dict[int, Pass]:
    """The last committed pass over each topic that has one, by the topic's id."""
    its = pass_.alias()
    newest = (
        select(its.c.id)
        .where(its.c.topic_id == topic.c.id, its.c.commit_id.is_not(None))
        .order_by(its.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = select(pass_, topic.c.name).select_from(topic).join(pass_, pass_.c.id == newest)
    with catalog.read() as tx:
        return {row.topic_id: _pass(row) for row in tx.execute(query)}


def first_pass_over(catalog: Catalog, topic_id: int, number: int, offset: int) -> Pass | None:
    """The pass that covered an offset first: it removed what the record there made obsolete."""
    its = and_(pass_.c.topic_id == topic_id, pass_.c.partition == number)
    over = and_(its, pass_.c.start <= offset, pass_.c.end > offset, pass_.c.commit_id.is_not(None))
    query = select(pass_, topic.c.name).join(topic, topic.c.id == pass_.c.topic_id)
    with catalog.read() as tx:
        row = tx.execute(query.where(over).order_by(pass_.c.id).limit(1)).one_or_none()
    return None if row is None else _pass(row)


def last_round(catalog: Catalog) -> list[Pass]:
    """The passes of the newest round: one cleaner starts all of them at the same moment."""
    newest = passes(catalog, limit=1)
    if not newest:
        return []
    its = and_(
        pass_.c.id > newest[0].id - _MOST_OF_A_ROUND,
        pass_.c.by == newest[0].by,
        pass_.c.started_ms == newest[0].started_ms,
    )
    query = select(pass_, topic.c.name).join(topic, topic.c.id == pass_.c.topic_id)
    with catalog.read() as tx:
        return [_pass(row) for row in tx.execute(query.where(its).order_by(pass_.c.id.desc()))]


def _pass(row: Row[Any]) -> Pass:
    stored = dict(zip(_FACTS, _OF_A_PASS(row), strict=True))
    return Pass(topic=row.name, jobs=tuple(row.jobs), **stored)


def _horizons(tx: Connection, topic_ids: list[int]) -> dict[tuple[int, int], list[Horizon]]:
    c = pass_.c
    rows = tx.execute(
        select(c.topic_id, c.partition, c.id, c.start, c.end, c.horizon_ms, c.first_tombstone)
        .where(pass_.c.topic_id.in_(topic_ids), pass_.c.first_tombstone.is_not(None))
        .order_by(c.topic_id, c.partition, c.id)  # as the index has it: ordered by id alone, SQLite
        # takes another, and reads every pass there ever was
    )
    found = defaultdict(list)
    for row in rows:
        topic_id, number, *its = row
        found[topic_id, number].append(Horizon(*its))
    return found


def positions(
    tx: Connection, topic_ids: list[int], active_since_ms: int
) -> dict[tuple[int, int], tuple[Position, ...]]:
    """How far the active consumer groups have read each partition, lowest first.

    Active: it has committed since then, or had a member. A group that has committed anything of a
    topic has read nothing of the partitions it has not committed.
    """
    c = consumer_offset.c
    rows = tx.execute(select(consumer_offset).where(c.topic_id.in_(topic_ids))).all()
    numbers = defaultdict(list)
    for row in tx.execute(select(partition).where(partition.c.topic_id.in_(topic_ids))):
        numbers[row.topic_id].append(row.partition)
    members = select(group_member.c.group_id, func.max(group_member.c.until_ms).label("ms"))
    seen_ms = {r.group_id: r.ms for r in tx.execute(members.group_by(group_member.c.group_id))}
    last_ms: dict[tuple[int, str], int] = defaultdict(int)
    committed = {}
    for row in rows:
        group = (row.topic_id, row.group_id)
        last_ms[group] = max(last_ms[group], row.committed_ms, seen_ms.get(row.group_id, 0))
        committed[row.topic_id, row.group_id, row.partition] = row.committed
    found: dict[tuple[int, int], list[Position]] = defaultdict(list)
    for topic_id, group_id in (g for g, ms in last_ms.items() if ms >= active_since_ms):
        for number in numbers[topic_id]:
            offset = committed.get((topic_id, group_id, number), 0)
            found[topic_id, number].append(Position(offset, group_id))
    return {where: tuple(sorted(its)) for where, its in found.items()}
