"""What can be asked of the catalog. Each function that takes a Catalog is one snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Row, and_, func, or_, select
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
from lastword.errors import InvalidArgumentError, UnknownTopicError
from lastword.model import FileFacts, LogFile, PartitionRow, Segment, Source, TopicRow

_MOST_CONDITIONS = 200  # in one statement

_OF_A_PARTITION = attrgetter(*(f.name for f in fields(PartitionRow)))
_FACTS = tuple(f.name for f in fields(FileFacts) if f.name != "last_delta")
_OF_A_FILE = attrgetter(*_FACTS)

LIVE = file.c.retired_commit.is_(None)


def topics(catalog: Catalog) -> list[TopicRow]:
    """All topics, sorted by name."""
    with catalog.read() as tx:
        names = tx.execute(select(topic).order_by(topic.c.name)).all()
        counts = tx.execute(
            select(partition.c.topic_id, func.count().label("n")).group_by(partition.c.topic_id)
        )
        partitions = {row.topic_id: row.n for row in counts}
        overrides: dict[int, dict[str, str]] = defaultdict(dict)
        for row in tx.execute(select(topic_config)):
            overrides[row.topic_id][row.key] = row.value
        store = store_overrides(tx)
    return [
        TopicRow(
            row.id,
            row.name,
            partitions[row.id],
            effective_config(overrides[row.id], store),
            row.is_scattered,
            _source(row.source),
            row.paused_ms,
        )
        for row in names
    ]


def sizes(catalog: Catalog) -> dict[int, tuple[int, int]]:
    """Records and bytes of every topic that has any, by its id."""
    with catalog.read() as tx:
        rows = tx.execute(
            select(
                file.c.topic_id,
                func.sum(file.c.records).label("records"),
                func.sum(file.c.bytes).label("bytes"),
            )
            .where(LIVE)
            .group_by(file.c.topic_id)
        )
        return {row.topic_id: (int(row.records), int(row.bytes)) for row in rows}


def topic_named(catalog: Catalog, name: str) -> TopicRow:
    """The topic of that name, with its effective settings."""
    if not isinstance(name, str):
        raise InvalidArgumentError(f"a topic's name is a text, not {name!r}")
    with catalog.read() as tx:
        topic_id = tx.scalar(select(topic.c.id).where(topic.c.name == name))
        if topic_id is None:
            raise UnknownTopicError(name, known=list(tx.scalars(select(topic.c.name))))
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
    row = tx.execute(select(topic).where(topic.c.id == topic_id)).one()
    config = effective_config(topic_overrides(tx, topic_id), store_overrides(tx))
    return TopicRow(
        topic_id,
        name,
        partitions,
        config,
        row.is_scattered,
        _source(row.source),
        row.paused_ms,
    )


def created_ms(catalog: Catalog, of: TopicRow) -> int:
    """When a topic was created."""
    with catalog.read() as tx:
        found = tx.scalar(select(topic.c.created_ms).where(topic.c.id == of.id))
    if found is None:
        raise UnknownTopicError(of.name)
    return int(found)


def topic_overrides(tx: Connection, topic_id: int) -> dict[str, str]:
    """The settings that the topic has set itself."""
    return _as_dict(tx, select(topic_config).where(topic_config.c.topic_id == topic_id))


def store_overrides(tx: Connection) -> dict[str, str]:
    """The settings that the store has set."""
    return _as_dict(tx, select(store_config))


def partitions(catalog: Catalog, of: TopicRow) -> list[PartitionRow]:
    """The topic's partitions, in order."""
    query = select(partition).where(partition.c.topic_id == of.id)
    with catalog.read() as tx:
        rows = tx.execute(query.order_by(partition.c.partition)).all()
    if not rows:
        raise UnknownTopicError(of.name)
    return [partition_row(row) for row in rows]


def partitions_of(catalog: Catalog, topics: Sequence[TopicRow]) -> list[PartitionRow]:
    """The partitions of these topics, in order, at one moment."""
    with catalog.read() as tx:
        return _partitions_of(tx, topics)


def bounds(catalog: Catalog, topic_id: int, name: str) -> tuple[bool, list[PartitionRow]]:
    """Whether a topic is scattered, and its partitions in order; made to be quick."""
    its = select(partition, topic.c.is_scattered).join(topic, topic.c.id == partition.c.topic_id)
    with catalog.read() as tx:
        rows = tx.execute(its.where(topic.c.id == topic_id).order_by(partition.c.partition)).all()
    if not rows:
        raise UnknownTopicError(name)
    return rows[0].is_scattered, [partition_row(row) for row in rows]


def log_of(
    catalog: Catalog, of: TopicRow, since: Mapping[int, int]
) -> tuple[TopicRow, list[tuple[PartitionRow, list[LogFile]]]]:
    """A topic, and its partitions with their live files, at one moment.

    Of the partitions in `since`, only the files that reach to these offsets.
    """
    with catalog.read() as tx:
        now = topic_row(tx, of.id, of.name)
        return now, _logs(tx, [now], since)


def whole_logs(
    catalog: Catalog, topics: Sequence[TopicRow]
) -> list[tuple[PartitionRow, list[LogFile]]]:
    """Every partition of these topics with all its live files, at one moment."""
    with catalog.read() as tx:
        return _logs(tx, topics, {})


def _logs(
    tx: Connection, topics: Sequence[TopicRow], since: Mapping[int, int]
) -> list[tuple[PartitionRow, list[LogFile]]]:
    by_id = {t.id: t for t in topics}
    live = select(file).where(LIVE, file.c.topic_id.in_(by_id)).order_by(file.c.last_offset)
    if since:
        listed = list(since.items())[:_MOST_CONDITIONS]
        rest = file.c.partition.not_in([number for number, _ in listed])
        its = (and_(file.c.partition == n, file.c.last_offset >= at) for n, at in listed)
        live = live.where(or_(rest, *its))
    rows = _partitions_of(tx, topics)
    found = tx.execute(live).all()
    files: dict[tuple[int, int], list[LogFile]] = defaultdict(list)
    for f in found:
        files[f.topic_id, f.partition].append(log_file(f, by_id[f.topic_id]))
    return [(row, files[row.topic_id, row.partition]) for row in rows]


def read_plan(
    catalog: Catalog, of: TopicRow, number: int, wanted: tuple[int, int], limit: int | None = None
) -> tuple[PartitionRow, list[LogFile]]:
    """A partition, and the first live files of it that may hold the wanted offsets, in order."""
    start, end = wanted
    overlapping = _live_files_of(of, number).where(
        file.c.last_offset >= start, file.c.base_offset < end
    )
    with catalog.read() as tx:
        row = tx.execute(
            select(partition).where(partition.c.topic_id == of.id, partition.c.partition == number)
        ).one_or_none()
        if row is None:
            is_there = tx.scalar(select(topic.c.id).where(topic.c.id == of.id))
            raise UnknownTopicError(of.name, number if is_there else None)
        found = tx.execute(overlapping.limit(limit)).all()
    return partition_row(row), [log_file(f, of) for f in found]


def files_before(
    catalog: Catalog, of: TopicRow, number: int, offset: int, limit: int
) -> list[LogFile]:
    """The last live files of a partition that hold records below an offset, newest first."""
    before = _live_files_of(of, number).where(file.c.base_offset < offset)
    newest_first = before.order_by(None).order_by(file.c.base_offset.desc())
    with catalog.read() as tx:
        return [log_file(row, of) for row in tx.execute(newest_first.limit(limit))]


def first_file_since(
    catalog: Catalog, of: TopicRow, number: int, start: int, timestamp_ms: int
) -> LogFile | None:
    """The first live file from offset `start` on that holds a record as young as that."""
    young = _live_files_of(of, number).where(
        file.c.last_offset >= start, file.c.max_ms >= timestamp_ms
    )
    with catalog.read() as tx:
        row = tx.execute(young.limit(1)).one_or_none()
    return log_file(row, of) if row else None


def is_live(catalog: Catalog, path: str) -> bool:
    """Whether this file is part of the log now."""
    with catalog.read() as tx:
        return tx.scalar(select(file.c.id).where(file.c.path == path, LIVE)) is not None


def segments(catalog: Catalog, of: TopicRow) -> dict[int, list[Segment]]:
    """The segments of every partition of a topic that have live files, oldest first."""
    with catalog.read() as tx:
        found = segments_of(tx, [of.id])
    return {number: segments for (_, number), segments in found.items()}


def segments_of(tx: Connection, topic_ids: Sequence[int]) -> dict[tuple[int, int], list[Segment]]:
    """The same for several topics, by (topic id, partition), inside a transaction."""
    found: dict[tuple[int, int], list[Segment]] = defaultdict(list)
    for topic_id, number, active_base, *facts in tx.execute(_segments_of(topic_ids)).all():
        base, last_offset, files, records, size, tombstones, first_ms, max_ms = facts
        found[topic_id, number].append(
            Segment(
                base=base,
                last_offset=last_offset,
                files=files,
                records=int(records),
                bytes=int(size),
                tombstones=int(tombstones),
                first_ms=first_ms,
                max_ms=max_ms,
                is_active=base == active_base,
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
    return PartitionRow(*_OF_A_PARTITION(row))


def _source(stored: Mapping[str, str] | None) -> Source | None:
    return None if stored is None else Source(**stored)


def log_file(row: Row[Any], of: TopicRow) -> LogFile:
    stored = dict(zip(_FACTS, _OF_A_FILE(row), strict=True))
    return LogFile(
        topic=of.name,
        partition=row.partition,
        segment_base=row.segment_base,
        base_offset=row.base_offset,
        last_offset=row.last_offset,
        facts=FileFacts(**stored, last_delta=row.last_offset - row.base_offset),
    )


def _partitions_of(tx: Connection, topics: Sequence[TopicRow]) -> list[PartitionRow]:
    its = select(partition).where(partition.c.topic_id.in_([t.id for t in topics]))
    rows = tx.execute(its.order_by(partition.c.topic_id, partition.c.partition))
    return [partition_row(row) for row in rows]


def _live_files_of(of: TopicRow, number: int) -> sa.Select[Any]:
    """The query for the live files of a partition, in offset order."""
    return (
        select(file)
        .where(LIVE, file.c.topic_id == of.id, file.c.partition == number)
        .order_by(file.c.last_offset)
    )


def _segments_of(topic_ids: Sequence[int]) -> sa.Select[Any]:
    its = (file.c.topic_id, file.c.partition)
    sums = (
        select(
            *its,
            file.c.segment_base,
            func.max(file.c.last_offset).label("last_offset"),
            func.count().label("files"),
            *(func.sum(file.c[n]).label(n) for n in ("records", "bytes", "tombstones")),
            func.max(file.c.max_ms).label("max_ms"),
            func.min(file.c.last_offset).label("first_file"),
        )
        .where(LIVE, file.c.topic_id.in_(topic_ids))
        .group_by(*its, file.c.segment_base)
        .subquery()
    )
    first = file.alias()
    is_first = and_(
        first.c.topic_id == sums.c.topic_id,
        first.c.partition == sums.c.partition,
        first.c.last_offset == sums.c.first_file,
        first.c.retired_commit.is_(None),
    )
    is_its = and_(
        partition.c.topic_id == sums.c.topic_id, partition.c.partition == sums.c.partition
    )
    return (
        select(
            *(sums.c[name] for name in ("topic_id", "partition")),
            partition.c.active_base,
            *(sums.c[name] for name in ("segment_base", "last_offset", "files")),
            *(sums.c[name] for name in ("records", "bytes", "tombstones")),
            first.c.first_ms,
            sums.c.max_ms,
        )
        .join(first, is_first)
        .join(partition, is_its)
        .order_by(sums.c.topic_id, sums.c.partition, sums.c.segment_base)
    )


def _as_dict(tx: Connection, query: sa.Select[Any]) -> dict[str, str]:
    return {row.key: row.value for row in tx.execute(query)}
