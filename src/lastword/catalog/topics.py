"""Topics and settings: created, altered, deleted; each one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy import null, select
from sqlalchemy.engine import Connection

from lastword import config as settings
from lastword.catalog import queries
from lastword.catalog.engine import Catalog
from lastword.catalog.retired import retire
from lastword.catalog.rows import record_commit
from lastword.catalog.schema import (
    file,
    partition,
    store,
    store_config,
    topic,
    topic_config,
    writer,
)
from lastword.errors import InvalidTopicError, MirrorError, TopicExistsError, UnknownTopicError
from lastword.model import Source, TopicRow, valid_partition_count, valid_topic_name


def create_topic(
    catalog: Catalog,
    name: str,
    partitions: int,
    config: Mapping[str, object],
    now_ms: int,
    source: Source | None = None,
) -> TopicRow:
    """A new topic; with a source, one that mirrors it."""
    valid_topic_name(name)
    valid_partition_count(partitions)
    with catalog.write() as tx:
        _lock_settings(tx)
        valid = settings.topic_config(config, queries.store_overrides(tx))
        overrides = _as_strings(config, valid)
        if tx.scalar(select(topic.c.id).where(topic.c.name == name)) is not None:
            raise TopicExistsError(name)
        stored = null() if source is None else asdict(source)
        new = topic.insert().values(name=name, created_ms=now_ms, source=stored)
        topic_id = int(tx.execute(new.returning(topic.c.id)).scalar_one())
        _set(tx, topic_config, {"topic_id": topic_id}, overrides)
        _insert_partitions(tx, topic_id, range(partitions))
        record_commit(tx, "create", name, now_ms, f"{partitions} partition(s)")
        return queries.topic_row(tx, topic_id, name)


def add_partitions(catalog: Catalog, row: TopicRow, count: int, now_ms: int) -> None:
    """Grow the topic to `count` partitions."""
    valid_partition_count(count)
    with catalog.write() as tx:
        _lock_topic(tx, row)
        now = queries.topic_row(tx, row.id, row.name).partitions
        if count <= now:
            raise InvalidTopicError(
                f"topic {row.name!r} has {now} partition(s); the number can only grow, not to {count}"
            )
        _insert_partitions(tx, row.id, range(now, count))
        tx.execute(topic.update().where(topic.c.id == row.id).values(is_scattered=True))
        record_commit(tx, "config", row.name, now_ms, f"{now} → {count} partitions")


def release_topic(catalog: Catalog, row: TopicRow, now_ms: int) -> None:
    """Make a mirror an ordinary topic, which takes appends."""
    with catalog.write() as tx:
        _lock_topic(tx, row)
        if queries.topic_row(tx, row.id, row.name).source is None:
            raise MirrorError(f"topic {row.name!r} is no mirror")
        tx.execute(topic.update().where(topic.c.id == row.id).values(source=null()))
        record_commit(tx, "config", row.name, now_ms, "no longer a mirror")


def pause_topic(catalog: Catalog, row: TopicRow, is_paused: bool, now_ms: int) -> None:
    """Let the cleaner leave a topic alone, or take it up again."""
    with catalog.write() as tx:
        _lock_topic(tx, row)
        if queries.topic_row(tx, row.id, row.name).is_paused == is_paused:
            return
        since_ms = now_ms if is_paused else None
        tx.execute(topic.update().where(topic.c.id == row.id).values(paused_ms=since_ms))
        record_commit(tx, "config", row.name, now_ms, "paused" if is_paused else "resumed")


def alter_topic(
    catalog: Catalog, row: TopicRow, changes: Mapping[str, object], now_ms: int
) -> None:
    """Set settings of a topic; None removes one."""
    settings.refuse_unknown(changes, settings.TopicConfig)
    with catalog.write() as tx:
        _lock_settings(tx)
        _lock_topic(tx, row)
        overrides = _altered(queries.topic_overrides(tx, row.id), changes)
        valid = settings.topic_config(overrides, queries.store_overrides(tx))
        tx.execute(topic_config.delete().where(topic_config.c.topic_id == row.id))
        _set(tx, topic_config, {"topic_id": row.id}, _as_strings(overrides, valid))
        record_commit(tx, "config", row.name, now_ms, _shown(changes))


def alter_store(catalog: Catalog, changes: Mapping[str, object], now_ms: int) -> None:
    """Set settings of the store; None removes one. Every topic must still be valid after it."""
    settings.refuse_unknown(changes, settings.StoreConfig)
    with catalog.write() as tx:
        _lock_settings(tx)
        overrides = _altered(queries.store_overrides(tx), changes)
        valid = settings.store_config(overrides)
        for topic_id in tx.scalars(select(topic.c.id)).all():
            settings.topic_config(queries.topic_overrides(tx, topic_id), overrides)
        for_topics = settings.topic_config({}, overrides)
        tx.execute(store_config.delete())
        _set(tx, store_config, {}, _as_strings(overrides, valid, for_topics))
        record_commit(tx, "config", None, now_ms, _shown(changes))


def delete_topic(catalog: Catalog, row: TopicRow, now_ms: int) -> None:
    """Take the topic and all its files out of the log."""
    with catalog.write() as tx:
        _lock_topic(tx, row)
        tx.execute(writer.delete().where(writer.c.topic_id == row.id))
        its = select(partition).where(partition.c.topic_id == row.id)
        tx.execute(its.order_by(partition.c.partition).with_for_update()).all()
        commit_id = record_commit(tx, "delete", row.name, now_ms)
        retire(tx, file.c.topic_id == row.id, commit_id, row.delete_after_ms(now_ms))
        tx.execute(topic.delete().where(topic.c.id == row.id))


def describe_topic(catalog: Catalog, row: TopicRow) -> list[settings.Setting]:
    """The topic's settings: value, default, who set it."""
    with catalog.read() as tx:
        return settings.describe_topic(
            queries.topic_overrides(tx, row.id), queries.store_overrides(tx)
        )


def describe_store(catalog: Catalog) -> list[settings.Setting]:
    """The store's settings: value, default, who set it."""
    with catalog.read() as tx:
        return settings.describe_store(queries.store_overrides(tx))


def store_settings(catalog: Catalog) -> settings.StoreConfig:
    """The store's own settings."""
    with catalog.read() as tx:
        overrides = queries.store_overrides(tx)
    return settings.store_config(overrides)


def _lock_settings(tx: Connection) -> None:
    """One change of settings at a time: a topic's are checked together with the store's."""
    tx.execute(select(store).with_for_update()).one()


def _lock_topic(tx: Connection, row: TopicRow) -> None:
    if tx.execute(select(topic).where(topic.c.id == row.id).with_for_update()).first() is None:
        raise UnknownTopicError(row.name)


def _insert_partitions(tx: Connection, topic_id: int, numbers: range) -> None:
    tx.execute(partition.insert(), [{"topic_id": topic_id, "partition": n} for n in numbers])


def _altered(current: Mapping[str, str], changes: Mapping[str, object]) -> dict[str, object]:
    return {k: v for k, v in {**current, **changes}.items() if v is not None}


def _as_strings(overrides: Mapping[str, object], *valid: Any) -> dict[str, str]:
    """The overrides in canonical spelling, taken from the validated settings."""
    spelled: dict[str, str] = {}
    for config in valid:
        spelled |= settings.to_strings(config)
    return {key: spelled[settings.SYNONYMS.get(key, key)] for key in overrides}


def _set(
    tx: Connection, table: sa.Table, fixed: Mapping[str, object], rows: dict[str, str]
) -> None:
    if rows:
        tx.execute(table.insert(), [{**fixed, "key": k, "value": v} for k, v in rows.items()])


def _shown(changes: Mapping[str, object]) -> str:
    return ", ".join(f"-{k}" if v is None else f"{k}={v}" for k, v in sorted(changes.items()))
