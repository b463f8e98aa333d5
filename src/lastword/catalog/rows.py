"""Rows that every change of the log touches: its commit, the partitions it locks, the files it adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import select, tuple_
from sqlalchemy.engine import Connection

from lastword.catalog import queries
from lastword.catalog.engine import author
from lastword.catalog.schema import commit, partition, topic
from lastword.errors import UnknownTopicError
from lastword.model import FileFacts, PartitionRow, TopicRow


def record_commit(
    tx: Connection, kind: str, topic_name: str | None, now_ms: int, detail: str = ""
) -> int:
    """The row that says what changed the log, when and by whom; its id."""
    row = commit.insert().values(
        kind=kind, topic=topic_name, created_ms=now_ms, by=author(), detail=detail
    )
    return int(tx.execute(row.returning(commit.c.id)).scalar_one())


def file_row(
    p: PartitionRow, facts: FileFacts, segment_base: int, base_offset: int, commit_id: int
) -> dict[str, object]:
    stored = asdict(facts)
    last_offset = base_offset + stored.pop("last_delta")
    return {
        **stored,
        "topic_id": p.topic_id,
        "partition": p.partition,
        "segment_base": segment_base,
        "base_offset": base_offset,
        "last_offset": last_offset,
        "added_commit": commit_id,
    }


def lock_partitions(
    tx: Connection, topics: Sequence[TopicRow], wanted: Sequence[tuple[int, int]]
) -> list[PartitionRow]:
    """These (topic id, partition)s, locked, in order."""
    found = tx.execute(
        select(partition)
        .where(tuple_(partition.c.topic_id, partition.c.partition).in_(wanted))
        .order_by(partition.c.topic_id, partition.c.partition)
        .with_for_update()
    )
    rows = [queries.partition_row(row) for row in found]
    if missing := set(wanted) - {(p.topic_id, p.partition) for p in rows}:
        topic_id, number = min(missing)
        raise unknown(tx, next(t for t in topics if t.id == topic_id), number)
    return rows


def unknown(tx: Connection, of: TopicRow, number: int | None) -> UnknownTopicError:
    is_there = tx.scalar(select(topic.c.id).where(topic.c.id == of.id)) is not None
    return UnknownTopicError(of.name, number if is_there else None)


def update_partition(tx: Connection, p: PartitionRow, **values: int | str | None) -> None:
    tx.execute(
        partition.update()
        .where(partition.c.topic_id == p.topic_id, partition.c.partition == p.partition)
        .values(**values)
    )
