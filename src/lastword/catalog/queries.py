"""What can be asked of the catalog. Each function is one snapshot."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Row, and_, func, select
from sqlalchemy.engine import Connection

from lastword.catalog.engine import Catalog
from lastword.catalog.schema import (
    file,
    partition,
    retired_file,
    store_config,
    topic,
    topic_config,
)
from lastword.config import topic_config as effective_config
from lastword.errors import UnknownTopicError
from lastword.model import FileFacts, LogFile, PartitionRow, Segment, TopicRow

LIVE = file.c.retired_commit.is_(None)


def topic_names(catalog: Catalog) -> list[str]:
    """The names of all topics, sorted."""
    with catalog.read() as tx:
        return list(tx.scalars(select(topic.c.name).order_by(topic.c.name)))


def topic_named(catalog: Catalog, name: str) -> TopicRow:
    """The topic of that name, with its effective settings."""
    with catalog.read() as tx:
        topic_id = tx.scalar(select(topic.c.id).where(topic.c.name == name))
        if topic_id is None:
            known = tx.scalars(select(topic.c.name))
            raise UnknownTopicError(name, known=list(known))
        return topic_row(tx, topic_id, name)


def topic_by_id(catalog: Catalog, topic_id: int, name: str) -> TopicRow:
    """The topic with that id; UnknownTopicError if it has been deleted since."""
    with catalog.read() as tx:
        return topic_row(tx, topic_id, name)


def topic_row(tx: Connection, topic_id: int, name: str) -> TopicRow:
    """The topic with that id, inside a transaction."""
    partitions = tx.scalar(
        select(func.count()).select_from(partition).where(partition.c.topic_id == topic_id)
    )
    if not partitions:
        raise UnknownTopicError(name)
    config = effective_config(topic_overrides(tx, topic_id), store_overrides(tx))
    return TopicRow(topic_id, name, partitions, config)


def topic_overrides(tx: Connection, topic_id: int) -> dict[str, str]:
    """The settings that the topic has set itself."""
    return _as_dict(tx, select(topic_config).where(topic_config.c.topic_id == topic_id))


def store_overrides(tx: Connection) -> dict[str, str]:
    """The settings that the store has set."""
    return _as_dict(tx, select(store_config))


def partitions_of(catalog: Catalog, topic_id: int, name: str) -> list[PartitionRow]:
    """The topic's partitions, in order."""
    with catalog.read() as tx:
        rows = tx.execute(
            select(partition)
            .where(partition.c.topic_id == topic_id)
            .order_by(partition.c.partition)
        )
        found = [partition_row(row) for row in rows]
    if not found:
        raise UnknownTopicError(name)
    return found


def partition_of(catalog: Catalog, topic_id: int, name: str, number: int) -> PartitionRow:
    """One partition; UnknownTopicError if it, or its topic, is not there."""
    with catalog.read() as tx:
        return _partition_in(tx, topic_id, name, number)


def read_plan(
    catalog: Catalog, topic_id: int, name: str, number: int, wanted: tuple[int, int], limit: int
) -> tuple[PartitionRow, list[LogFile]]:
    """A partition, and the first live files of it that may hold the wanted offsets, in order."""
    start, end = wanted
    with catalog.read() as tx:
        row = _partition_in(tx, topic_id, name, number)
        files = tx.execute(
            _live_files(topic_id, number)
            .where(file.c.last_offset >= start, file.c.base_offset < end)
            .limit(limit)
        )
        return row, [log_file(f) for f in files]


def live_files(catalog: Catalog, topic_id: int, number: int) -> list[LogFile]:
    """All live files of a partition, in offset order."""
    with catalog.read() as tx:
        return [log_file(f) for f in tx.execute(_live_files(topic_id, number))]


def is_live(catalog: Catalog, path: str) -> bool:
    """Whether this file is part of the log now."""
    with catalog.read() as tx:
        return tx.scalar(select(file.c.id).where(file.c.path == path, LIVE)) is not None


def first_file_from(
    catalog: Catalog, topic_id: int, number: int, start: int, timestamp_ms: int
) -> LogFile | None:
    """The first file from `start` on that holds a record as young as that."""
    with catalog.read() as tx:
        row = tx.execute(
            _live_files(topic_id, number)
            .where(file.c.last_offset >= start, file.c.max_ms >= timestamp_ms)
            .limit(1)
        ).one_or_none()
    return log_file(row) if row else None


def segments(catalog: Catalog, topic_id: int) -> dict[int, list[Segment]]:
    """The segments of every partition of a topic that have live files, oldest first."""
    sums = (
        select(
            file.c.partition,
            file.c.segment_base,
            func.max(file.c.last_offset).label("last_offset"),
            func.count().label("files"),
            *(func.sum(file.c[n]).label(n) for n in ("records", "bytes", "tombstones")),
            func.max(file.c.max_ms).label("max_ms"),
            func.min(file.c.base_offset).label("first_base"),
        )
        .where(LIVE, file.c.topic_id == topic_id)
        .group_by(file.c.partition, file.c.segment_base)
        .subquery()
    )
    first = file.alias()
    query = (
        select(sums, first.c.first_ms, partition.c.active_base)
        .join(
            first,
            and_(
                first.c.topic_id == topic_id,
                first.c.partition == sums.c.partition,
                first.c.base_offset == sums.c.first_base,
                first.c.retired_commit.is_(None),
            ),
        )
        .join(
            partition,
            and_(partition.c.topic_id == topic_id, partition.c.partition == sums.c.partition),
        )
        .order_by(sums.c.partition, sums.c.segment_base)
    )
    with catalog.read() as tx:
        rows = tx.execute(query).all()
    found: dict[int, list[Segment]] = {}
    for row in rows:
        found.setdefault(row.partition, []).append(
            Segment(
                base=row.segment_base,
                last_offset=row.last_offset,
                files=row.files,
                records=int(row.records),
                bytes=int(row.bytes),
                tombstones=int(row.tombstones),
                first_ms=row.first_ms,
                max_ms=row.max_ms,
                is_active=row.segment_base == row.active_base,
            )
        )
    return found


def known_paths(catalog: Catalog) -> tuple[set[str], set[str]]:
    """The paths of all files in the log's history, and of the retired ones awaiting deletion."""
    with catalog.read() as tx:
        return set(tx.scalars(select(file.c.path))), set(tx.scalars(select(retired_file.c.path)))


def deletable(catalog: Catalog, now_ms: int) -> list[tuple[str, int]]:
    """Retired files whose grace is over: path and bytes."""
    live_paths = select(file.c.path).where(LIVE, file.c.path == retired_file.c.path)
    with catalog.read() as tx:
        rows = tx.execute(
            select(retired_file.c.path, retired_file.c.bytes)
            .where(retired_file.c.delete_after_ms <= now_ms, ~live_paths.exists())
            .order_by(retired_file.c.delete_after_ms, retired_file.c.path)
        )
        return [(row.path, row.bytes) for row in rows]


def partition_row(row: Row[Any]) -> PartitionRow:
    return PartitionRow(**{name: getattr(row, name) for name in PartitionRow.__annotations__})


def log_file(row: Row[Any]) -> LogFile:
    return LogFile(
        topic=row.name,
        partition=row.partition,
        segment_base=row.segment_base,
        base_offset=row.base_offset,
        last_offset=row.last_offset,
        facts=FileFacts(
            path=row.path,
            records=row.records,
            last_delta=row.last_offset - row.base_offset,
            bytes=row.bytes,
            tombstones=row.tombstones,
            null_keys=row.null_keys,
            first_ms=row.first_ms,
            max_ms=row.max_ms,
            footer_crc=row.footer_crc,
        ),
    )


def _partition_in(tx: Connection, topic_id: int, name: str, number: int) -> PartitionRow:
    row = tx.execute(
        select(partition).where(partition.c.topic_id == topic_id, partition.c.partition == number)
    ).one_or_none()
    if row is None:
        is_there = tx.scalar(select(topic.c.id).where(topic.c.id == topic_id))
        raise UnknownTopicError(name, number if is_there else None)
    return partition_row(row)


def _live_files(topic_id: int, number: int) -> sa.Select[Any]:
    return (
        select(file, topic.c.name)
        .join(topic, topic.c.id == file.c.topic_id)
        .where(LIVE, file.c.topic_id == topic_id, file.c.partition == number)
        .order_by(file.c.last_offset)
    )


def _as_dict(tx: Connection, query: sa.Select[Any]) -> dict[str, str]:
    return {row.key: row.value for row in tx.execute(query)}
