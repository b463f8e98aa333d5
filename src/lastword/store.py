"""A store: a catalog, a data root and a clock; the door to its topics."""

from __future__ import annotations

from collections.abc import Mapping

from lastword import check, garbage, retention
from lastword.catalog import queries, topics
from lastword.catalog.writers import forget_sessions
from lastword.check import Progress, Report
from lastword.config import Setting
from lastword.errors import TopicExistsError
from lastword.foundation import Foundation
from lastword.garbage import GarbageFile
from lastword.producer import Producer
from lastword.retention import Expire
from lastword.topic import Topic, TopicSummary


class Store:
    """An open store. Made by `lastword.open`; safe to use from several threads."""

    def __init__(self, shown: str, base: Foundation) -> None:
        self.url, self.base = shown, base

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
                ",".join(sorted(t.config.cleanup_policy)),
            )
            for t in queries.topics(self.base.catalog)
        ]

    def settings(self) -> list[Setting]:
        """The store's own settings: the cleaner's, and the defaults for its topics."""
        return topics.describe_store(self.base.catalog)

    def alter(self, changes: Mapping[str, object]) -> None:
        """Set settings of the store; None as value goes back to the default."""
        topics.alter_store(self.base.catalog, changes, self.base.clock())

    def producer(self, *, batch_bytes: int = 16 << 20, linger_ms: int = 1_000) -> Producer:
        """A producer for any topics of this store; use it as a context manager."""
        return Producer(self.base, batch_bytes=batch_bytes, linger_ms=linger_ms)

    def expire(self, *names: str, dry_run: bool = False) -> list[Expire]:
        """Run retention on these topics, or on all; what was dropped, or would be."""
        rows = (
            [queries.topic_named(self.base.catalog, name) for name in names]
            if names
            else queries.topics(self.base.catalog)
        )
        return retention.expire(self.base.catalog, rows, self.base.clock(), dry_run=dry_run)

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
