"""What changes the log. Each function is one transaction, and nothing else changes it.

The story of an append, by what a crash after each step leaves:

1. files are written and synced          orphans, which `gc` finds; the log is as before
2. the transaction begins: the partitions are locked, offsets given out, rows inserted
                                         nothing: the database undoes it; orphans as after 1
3. it is committed                       the append, whole
4. the caller is told                    the append, whole; a writer who gives its id and version
                                         asks again and gets the first answer

A pass is committed likewise (the story: lastword.cleaner.run), and so is what a mirror has copied
(lastword.kafka.mirror).

Locks are taken in one order, settings → topic → writer or group → partitions by (topic, number) → what
goes with them, so that two transactions cannot wait for each other.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.engine import Connection

from lastword.catalog import queries, writers
from lastword.catalog.cleaning import insert_pass, note_files, positions
from lastword.catalog.engine import Catalog
from lastword.catalog.retired import at_most, refuse_condemned, retire
from lastword.catalog.rows import (
    file_row,
    lock_partitions,
    record_commit,
    unknown,
    update_partition,
)
from lastword.catalog.schema import file, partition, pass_, topic
from lastword.config import TopicConfig
from lastword.errors import (
    ConflictError,
    InvalidRecordError,
    OffsetOutOfRangeError,
)
from lastword.model import (
    AppendedRange,
    AppendResult,
    Copy,
    PartitionRow,
    StagedFile,
    TopicRow,
    Writer,
)
from lastword.passes import TOMBSTONE, Pass, Swap
from lastword.segments import ActiveSegment, is_due, rolls_before


@dataclass(frozen=True)
class NewLogStart:
    """A partition's log start to be, and why."""

    partition: int
    log_start: int
    reason: str
    under: TopicConfig | None = None  # only if these are still the topic's settings


def commit_append(
    catalog: Catalog,
    topics: Sequence[TopicRow],
    staged: Sequence[StagedFile],
    now_ms: int,
    by: Writer | None = None,
) -> AppendResult:
    """Give out offsets to staged files, over all their partitions, all or nothing."""
    by_partition: dict[tuple[int, int], list[StagedFile]] = defaultdict(list)
    for s in staged:
        by_partition[s.topic_id, s.partition].append(s)
    scattered = {s.topic_id for s in staged if s.has_strays}
    with catalog.write() as tx:
        _scatter(tx, sorted(scattered))
        if by is not None:
            writers.lock(tx, by)
            if (done := writers.repeat_of(tx, by)) is not None:
                return done
        rows = lock_partitions(tx, topics, sorted(by_partition))
        fresh = {t.id: queries.topic_row(tx, t.id, t.name) for t in topics}
        for row in fresh.values():
            row.refuse_change("records are appended")
        _refuse_null_keys(fresh, staged)
        refuse_condemned(tx, [s.facts.path for s in staged])
        names = ",".join(sorted(t.name for t in topics))
        commit_id = record_commit(tx, "append", names, now_ms)
        ranges = [
            _append_to(tx, fresh[p.topic_id], p, by_partition[p.topic_id, p.partition], commit_id)
            for p in rows
        ]
        result = AppendResult(tuple(ranges))
        if by is not None:
            writers.remember(tx, by, result, now_ms)
        return result


def commit_mirror(
    catalog: Catalog,
    topics: Sequence[TopicRow],
    copies: Sequence[Copy],
    staged: Sequence[StagedFile],
    now_ms: int,
) -> None:
    """Append what was copied from Kafka at its own offsets, over all partitions, all or nothing.

    That log end still is where each copy was to begin makes it exactly once.
    """
    by_partition: dict[tuple[int, int], list[StagedFile]] = defaultdict(list)
    for s in sorted(staged, key=lambda s: s.base_offset or 0):
        by_partition[s.topic_id, s.partition].append(s)
    with catalog.write() as tx:
        _scatter(tx, sorted({s.topic_id for s in staged if s.has_strays}))
        wanted = {(c.topic_id, c.partition): c for c in copies}
        rows = lock_partitions(tx, topics, sorted(wanted))
        fresh = {t.id: queries.topic_row(tx, t.id, t.name) for t in topics}
        for t in topics:
            if fresh[t.id].source != t.source:
                raise ConflictError(f"topic {t.name!r} is no longer the mirror that it was")
        refuse_condemned(tx, [s.facts.path for s in staged])
        names = ",".join(sorted(t.name for t in topics))
        commit_id = record_commit(tx, "mirror", names, now_ms)
        for p in rows:
            copy = wanted[p.topic_id, p.partition]
            if p.log_end != copy.position:
                where = f"{fresh[p.topic_id].name}-{p.partition}"
                raise ConflictError(f"{where} was copied to {p.log_end} by another mirror")
            its = by_partition[p.topic_id, p.partition]
            _mirror_to(tx, fresh[p.topic_id], p, copy, its, commit_id)


def note_mirrored(catalog: Catalog, topic_id: int, numbers: Sequence[int], at_ms: int) -> None:
    """Note that at this time these partitions of a mirror had all that their source had."""
    its = sa.and_(partition.c.topic_id == topic_id, partition.c.partition.in_(numbers))
    with catalog.write() as tx:
        locked = select(partition).where(its).order_by(partition.c.partition).with_for_update()
        tx.execute(locked).all()
        tx.execute(partition.update().where(its).values(mirrored_ms=at_ms))


def commit_roll(
    catalog: Catalog, of: TopicRow, number: int | None, now_ms: int, *, only_due: bool = False
) -> list[int]:
    """Close the active segment of one or all partitions; which were rolled (not the empty ones).

    `only_due`: only where the segment is older than the topic's settings allow.
    """
    query = select(partition).where(partition.c.topic_id == of.id)
    if number is not None:
        query = query.where(partition.c.partition == number)
    with catalog.write() as tx:
        found = tx.execute(query.order_by(partition.c.partition).with_for_update()).all()
        if not found:
            raise unknown(tx, of, number)
        rolled = [p for p in map(queries.partition_row, found) if p.active_first_ms is not None]
        if only_due:
            config = queries.topic_row(tx, of.id, of.name).config
            rolled = [p for p in rolled if is_due(p, config, now_ms)]
        for p in rolled:
            update_partition(tx, p, active_base=p.log_end, active_bytes=0, active_first_ms=None)
        if rolled:
            record_commit(tx, "roll", of.name, now_ms)
        return [p.partition for p in rolled]


def commit_log_start(catalog: Catalog, of: TopicRow, new: NewLogStart, now_ms: int) -> int:
    """Raise a partition's log start and retire the files wholly below it; the log start now.

    One that is higher already stays. If nothing is left, an active segment with records is rolled.
    """
    with catalog.write() as tx:
        (p,) = lock_partitions(tx, [of], [(of.id, new.partition)])
        fresh = queries.topic_row(tx, of.id, of.name)
        is_retention, config = new.under is not None, fresh.config
        if not config.is_delete or (is_retention and (new.under != config or fresh.is_paused)):
            raise ConflictError(f"the settings of {of.name!r} were changed; nothing was dropped")
        if new.log_start > p.log_end:
            raise OffsetOutOfRangeError(of.name, p.partition, new.log_start, p.log_start, p.log_end)
        log_start = max(new.log_start, p.log_start)
        changes: dict[str, int | None] = {
            "log_start": log_start,
            "first_dirty": max(p.first_dirty, log_start),
        }
        detail = f"partition {p.partition}: {new.reason}"
        commit_id = record_commit(tx, "expire", of.name, now_ms, detail)
        below = sa.and_(
            file.c.topic_id == of.id,
            file.c.partition == p.partition,
            file.c.last_offset < log_start,
        )
        retire(tx, below, commit_id, of.delete_after_ms(now_ms))
        its = sa.and_(file.c.topic_id == of.id, file.c.partition == p.partition, queries.LIVE)
        if (
            p.active_first_ms is not None
            and tx.scalar(select(file.c.id).where(its).limit(1)) is None
        ):
            changes |= {"active_base": p.log_end, "active_bytes": 0, "active_first_ms": None}
        update_partition(tx, p, **changes)
        return log_start


def commit_clean(
    catalog: Catalog, of: TopicRow, done: Pass, swap: Swap, claim: str, now_ms: int
) -> Pass:
    """Swap a pass's files, move first dirty, and write its row; all of it, or nothing.

    The claim must still be the cleaner's own, the topic compacted, and every input file live.
    """
    began = time.perf_counter()
    with catalog.write() as tx:
        (p,) = lock_partitions(tx, [of], [(of.id, done.partition)])
        fresh = queries.topic_row(tx, of.id, of.name)
        if p.claim != claim:
            raise ConflictError(f"{done.topic}-{p.partition} was taken over by another cleaner")
        if not fresh.config.is_compact:
            raise ConflictError(f"topic {of.name!r} is no longer compacted; nothing was changed")
        if fresh.is_paused:
            raise ConflictError(f"topic {of.name!r} was paused; nothing was changed")
        if done.removed[TOMBSTONE]:
            _refuse_new_groups(tx, p, swap)
        refuse_condemned(tx, [f.facts.path for f in swap.added])
        commit_id = record_commit(tx, "clean", of.name, now_ms, f"partition {p.partition}")
        _swap(tx, fresh, p, swap, commit_id, now_ms)
        first_dirty = max(done.end, p.log_start)
        exact_from = max(p.exact_from, swap.exact_from)
        moved = {"first_dirty": first_dirty, "exact_from": exact_from}
        update_partition(tx, p, **moved, failures=0, failure="", retry_after_ms=0)
        for pass_id, first_tombstone in swap.first_tombstones.items():
            row = pass_.update().where(pass_.c.id == pass_id)
            tx.execute(row.values(first_tombstone=first_tombstone))
        done = replace(done, seconds={**done.seconds, "commit": time.perf_counter() - began})
        done = replace(done, id=insert_pass(tx, of.id, done, commit_id))
        note_files(tx, done.id, swap.changes)
        return done


def _scatter(tx: Connection, topic_ids: Sequence[int]) -> None:
    """Note that keys of these topics may be in other partitions than their hash names."""
    for topic_id in topic_ids:
        its = sa.and_(topic.c.id == topic_id, topic.c.is_scattered.is_(False))
        tx.execute(topic.update().where(its).values(is_scattered=True))


def _append_to(
    tx: Connection, of: TopicRow, p: PartitionRow, staged: Sequence[StagedFile], commit_id: int
) -> AppendedRange:
    """Give the next offsets of one partition to its staged files, rolling where it is due."""
    active, log_end = ActiveSegment.of(p), p.log_end
    rows = []
    for s in staged:
        facts, base = s.facts, log_end if s.base_offset is None else s.base_offset
        if rolls_before(active, facts, of.config, seed=f"{of.id}/{p.partition}"):
            active = ActiveSegment(base=log_end, bytes=0, first_ms=None)
        active = active.grown_by(facts)
        rows.append(file_row(p, facts, active.base, base, commit_id))
        log_end = base + facts.last_delta + 1
    if rows:
        tx.execute(file.insert(), rows)
    update_partition(
        tx,
        p,
        log_end=log_end,
        active_base=active.base,
        active_bytes=active.bytes,
        active_first_ms=active.first_ms,
    )
    return AppendedRange(of.name, p.partition, p.log_end, log_end - 1)


def _mirror_to(
    tx: Connection,
    of: TopicRow,
    p: PartitionRow,
    copy: Copy,
    staged: Sequence[StagedFile],
    commit_id: int,
) -> None:
    """Append to one partition what was copied, up to the end of the copy, which may be a gap."""
    changes = {"log_end": copy.end, "mirrored_ms": copy.mirrored_ms}
    if p.mirrored_ms is None:  # the first copy begins where its source does
        p = replace(p, log_end=copy.start, active_base=copy.start)
        changes |= {"log_start": copy.start, "first_dirty": copy.start}
    if copy.may_miss_tombstones:
        changes["exact_from"] = copy.end
    _append_to(tx, of, p, staged, commit_id)
    update_partition(tx, p, **changes)


def _swap(
    tx: Connection, of: TopicRow, p: PartitionRow, swap: Swap, commit_id: int, now_ms: int
) -> None:
    """Files out, files in, files into another segment; ConflictError if one is no longer live."""
    retired = 0
    for some in at_most(swap.retired):
        retired += retire(tx, file.c.path.in_(some), commit_id, of.delete_after_ms(now_ms))
    moved = 0
    for path, base in swap.moved.items():
        row = file.update().where(file.c.path == path, queries.LIVE)
        moved += tx.execute(row.values(segment_base=base)).rowcount
    if (retired, moved) != (len(swap.retired), len(swap.moved)):
        raise ConflictError(f"files of {of.name}-{p.partition} were retired during the pass")
    added = [
        file_row(p, new.facts, new.segment_base, new.base_offset, commit_id) for new in swap.added
    ]
    if added:
        tx.execute(file.insert(), added)


def _refuse_new_groups(tx: Connection, p: PartitionRow, swap: Swap) -> None:
    """Raise if a consumer group holds tombstones back that none did when the pass was planned."""
    found = positions(tx, [p.topic_id], swap.groups_since_ms).get((p.topic_id, p.partition), ())
    lowest = next(iter(found), None)
    if lowest is not None and (swap.held_from is None or lowest.offset < swap.held_from):
        raise ConflictError(f"consumer group {lowest.group!r} came in, and holds tombstones back")


def _refuse_null_keys(topics: dict[int, TopicRow], staged: Sequence[StagedFile]) -> None:
    for s in staged:
        if s.facts.null_keys and topics[s.topic_id].config.is_compact:
            raise InvalidRecordError(
                f"topic {topics[s.topic_id].name!r} became compacted during the append, which "
                f"has {s.facts.null_keys} record(s) without a key; nothing was appended"
            )
