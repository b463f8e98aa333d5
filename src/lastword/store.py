"""A store: a catalog, a data root and a clock; the door to its topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lastword import check, garbage, retention
from lastword.catalog import cleaning, groups, queries, topics
from lastword.catalog.writers import appended_before, forget_sessions
from lastword.check import Progress, Report
from lastword.cleaner.choose import Asked, decisions_for
from lastword.cleaner.plan import Decision
from lastword.cleaner.run import Cleaner, Round
from lastword.config import Setting
from lastword.consumer import Consumer, ConsumerSettings, offset_reset
from lastword.description import TopicSummary
from lastword.errors import (
    InvalidArgumentError,
    PolicyViolationError,
    TopicExistsError,
    UnknownTopicError,
)
from lastword.foundation import Foundation
from lastword.garbage import GarbageFile
from lastword.groups import Group
from lastword.jobs.runner import Runner
from lastword.jobs.session import found_or_started
from lastword.jobs.spark import SparkRunner
from lastword.log.append import append as append_batches
from lastword.model import AppendResult, TopicRow, valid_writer
from lastword.passes import Pass
from lastword.producer import Producer
from lastword.retention import Expire
from lastword.topic import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Store:
    """An open store. Made by `lastword.open`; safe to use from several threads."""

    def __init__(self, url: str, base: Foundation) -> None:
        """`url` is one by which any process here can open it, without a password."""
        self.url, self.base = url, base

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the catalog's connections."""
        self.base.catalog.close()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        if_not_exists: bool = False,
    ) -> Topic:
        """A new topic; settings have Kafka's names.

        With `if_not_exists`, a topic of that name that is there already is returned as it is.
        """
        now_ms = self.base.clock()
        try:
            row = topics.create_topic(self.base.catalog, name, partitions, config or {}, now_ms)
        except TopicExistsError:
            if not if_not_exists:
                raise
            return self.topic(name)
        return Topic(self.base, row)

    def topic(self, name: str) -> Topic:
        """The topic of that name; UnknownTopicError if there is none."""
        return Topic(self.base, queries.topic_named(self.base.catalog, name))

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return [topic.name for topic in queries.topics(self.base.catalog)]

    def summaries(self) -> list[TopicSummary]:
        """All topics with their sizes, sorted by name."""
        sizes = queries.sizes(self.base.catalog)
        return [
            TopicSummary(
                t.name,
                t.partitions,
                *sizes.get(t.id, (0, 0)),
                t.config.policy,
            )
            for t in queries.topics(self.base.catalog)
        ]

    def settings(self) -> list[Setting]:
        """The store's own settings: the cleaner's, and the defaults for its topics."""
        return topics.describe_store(self.base.catalog)

    def alter(self, changes: Mapping[str, object]) -> None:
        """Set settings of the store; None as value goes back to the default."""
        topics.alter_store(self.base.catalog, changes, self.base.clock())

    def append(
        self, records: Mapping[str, Any], *, writer: tuple[str, int] | None = None
    ) -> AppendResult:
        """Append to several topics, {name: records}: all or nothing over all of them.

        Records and `writer` as in `Topic.append`; such a writer's versions count over all topics.
        """
        if not isinstance(records, Mapping):
            raise InvalidArgumentError(
                "a store appends {topic: records}; for one, use topic.append"
            )
        by = None if writer is None else valid_writer(writer, topic_id=0)
        if by is not None and (done := appended_before(self.base.catalog, by)) is not None:
            return done
        now_ms = self.base.clock()
        batches = [self.topic(name).prepare(rows, now_ms) for name, rows in records.items()]
        return append_batches(self.base.catalog, self.base.root, batches, now_ms, by)

    def producer(self, *, batch_bytes: int = 16 << 20, linger_ms: int = 1_000) -> Producer:
        """A producer for any topics of this store; use it as a context manager."""
        return Producer(self.base, batch_bytes=batch_bytes, linger_ms=linger_ms)

    def consumer(
        self,
        group: str,
        topics: Sequence[str],
        *,
        auto_offset_reset: str = "earliest",
        session_timeout_ms: int = 45_000,
        max_poll_interval_ms: int = 300_000,
    ) -> Consumer:
        """A member of a consumer group: `poll` records, work on them, `commit`.

        The members of a group share the partitions of its topics. One that is not heard of for
        `session_timeout_ms`, or has not polled for `max_poll_interval_ms`, loses its own to the
        others. A group without a committed offset starts where `auto_offset_reset` says.
        """
        settings = ConsumerSettings(
            offset_reset(auto_offset_reset), session_timeout_ms, max_poll_interval_ms
        )
        return Consumer(self.base, group, topics, settings)

    def groups(self) -> list[str]:
        """The names of all consumer groups, sorted."""
        return groups.names(self.base.catalog, self.base.clock())

    def group(self, name: str) -> Group:
        """A consumer group: describe it, reset its offsets, delete it."""
        return Group(self.base, name)

    def expire(self, *names: str, dry_run: bool = False) -> list[Expire]:
        """Run retention on these topics, or on all; what was dropped, or would be."""
        rows = (
            [queries.topic_named(self.base.catalog, name) for name in names]
            if names
            else queries.topics(self.base.catalog)
        )
        return retention.expire(self.base.catalog, rows, self.base.clock(), dry_run=dry_run)

    def clean(
        self,
        *names: str,
        partition: int | None = None,
        force: bool = False,
        spark: SparkSession | None = None,
        runner: Runner | None = None,
    ) -> list[Pass]:
        """Compact what is eligible in these topics, or in all; the passes that were made.

        `force` rolls the active segments first and ignores the dirty ratio, but not the minimum
        lag. Runs on `spark`, else on the session of this process, else on a local one that is
        started for it. Where the policy has delete too, old segments are expired first. A pass that
        failed has an `error`; the others are committed.
        """
        asked = Asked(partition, force)
        jobs = runner or SparkRunner(spark or found_or_started)
        return list(self.clean_round(names, asked, jobs).passes)

    def clean_round(self, names: Sequence[str], asked: Asked, runner: Runner) -> Round:
        """One round of the cleaner: passes, what retention dropped, and what was left alone."""
        topics = self._compacted(names, asked)
        with Cleaner(self.base, runner) as cleaner:
            return cleaner.round(topics, asked)

    def plan(
        self, *names: str, partition: int | None = None, force: bool = False
    ) -> list[Decision]:
        """What `clean` would do, without doing it: a `Clean` or a `Nothing` for every partition."""
        asked = Asked(partition, force)
        return decisions_for(self.base, self._compacted(names, asked), asked, as_if=True)

    def passes(
        self, *names: str, partition: int | None = None, limit: int | None = None
    ) -> list[Pass]:
        """The passes over these topics, or over all, newest first."""
        rows = [queries.topic_named(self.base.catalog, name) for name in names]
        _refuse_unknown_partition(rows, partition)
        ids = [row.id for row in rows] or None
        return cleaning.passes(self.base.catalog, ids, number=partition, limit=limit)

    def _compacted(self, names: Sequence[str], asked: Asked) -> list[TopicRow]:
        """The topics of these names; without names, all that are compacted."""
        if not names:
            return [t for t in queries.topics(self.base.catalog) if t.config.is_compact]
        found = [queries.topic_named(self.base.catalog, name) for name in names]
        _refuse_unknown_partition(found, asked.partition)
        for topic in found:
            if not topic.config.is_compact:
                policy = topic.config.policy or "empty"
                raise PolicyViolationError(
                    f"topic {topic.name!r} has cleanup.policy={policy}; "
                    "only topics with 'compact' in it are cleaned"
                )
        return found

    def gc(
        self, *, orphan_age_ms: int = garbage.ORPHAN_AGE_MS, dry_run: bool = False
    ) -> list[GarbageFile]:
        """Delete retired files whose grace is over, and orphans; what was deleted, or would be."""
        now_ms = self.base.clock()
        if dry_run:
            return garbage.find(self.base.catalog, self.base.root, now_ms, orphan_age_ms)
        expiration_ms = topics.store_settings(self.base.catalog).producer_id_expiration_ms
        forget_sessions(self.base.catalog, before_ms=now_ms - expiration_ms)
        return garbage.collect(self.base.catalog, self.base.root, now_ms, orphan_age_ms)

    def check(
        self,
        *,
        quick: bool = False,
        orphan_age_ms: int = garbage.ORPHAN_AGE_MS,
        progress: Progress = lambda _: None,
    ) -> Report:
        """Compare catalog and files; `quick` does not read the records."""
        return check.check(
            self.base.catalog,
            self.base.root,
            self.base.clock(),
            quick=quick,
            progress=progress,
            orphan_age_ms=orphan_age_ms,
        )


def _refuse_unknown_partition(topics: Sequence[TopicRow], partition: int | None) -> None:
    for topic in topics:
        if partition is not None and not 0 <= partition < topic.partitions:
            raise UnknownTopicError(topic.name, partition)
