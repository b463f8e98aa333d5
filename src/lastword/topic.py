"""A topic: append, read, roll, alter."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lastword.catalog import commits, queries, topics
from lastword.catalog.commits import NewLogStart
from lastword.catalog.writers import appended_before
from lastword.cleaner.choose import Asked, states_of
from lastword.cleaner.why import Why, why
from lastword.config import Setting, TopicConfig
from lastword.description import PartitionDescription, TopicDescription
from lastword.erase import Receipt, erase
from lastword.errors import InvalidArgumentError, OffsetOutOfRangeError, PolicyViolationError
from lastword.foundation import Foundation
from lastword.jobs.runner import Runner
from lastword.jobs.session import found_or_started
from lastword.jobs.spark import SparkRunner
from lastword.log import batch, read
from lastword.log.append import append as append_batches
from lastword.log.batch import Batch
from lastword.log.changes import Changes, changes
from lastword.log.deleted import Deleted, deleted_keys
from lastword.log.latest import Latest, Progress, moment_of
from lastword.log.lookup import History, Lookup
from lastword.log.read import Reader, Span
from lastword.log.records import as_key, to_table
from lastword.model import AppendResult, PartitionRow, Record, TopicRow, valid_writer
from lastword.table import Change, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Topic:
    """A handle on one topic of a store. Cheap; it goes stale when the topic is deleted."""

    def __init__(self, base: Foundation, row: TopicRow) -> None:
        self._base, self.id, self.name = base, row.id, row.name
        self._keyless = 0

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"

    @property
    def row(self) -> TopicRow:
        """The topic as the catalog has it now."""
        return queries.topic_by_id(self._base.catalog, self.id, self.name)

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return self.row.partitions

    @property
    def config(self) -> TopicConfig:
        """Its effective settings."""
        return self.row.config

    def append(
        self,
        records: Iterable[Record | tuple[Any, ...]] | Any,
        *,
        writer: tuple[str, int] | None = None,
    ) -> AppendResult:
        """Append records, all or nothing; they are durable when this returns.

        `records`: (key, value[, timestamp[, headers[, partition]]]) tuples, Records, or an Arrow
        table with such columns. `writer`: an id and a version that grows with each append; the
        same version again appends nothing and returns the first result.
        """
        by = None if writer is None else valid_writer(writer, self.id)
        if by is not None and (done := appended_before(self._base.catalog, by)) is not None:
            return done
        now_ms = self._base.clock()
        prepared = self.prepare(records, now_ms)
        return append_batches(self._base.catalog, self._base.root, [prepared], now_ms, by)

    def prepare(self, records: Any, now_ms: int, *, is_late: bool = False) -> Batch:
        """The records checked against the topic's settings, each with its partition."""
        row = self.row
        table = to_table(records)
        ready = batch.checked(table, row, now_ms, self._keyless, is_late=is_late)
        self._keyless += table["key"].null_count
        return ready

    def read(
        self,
        partition: int | None = None,
        start: int | None = None,
        end: int | None = None,
        *,
        limit: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> Reader:
        """Read a partition from `start` (else log start) up to `end` (else log end), exclusive.

        Without a partition: all of them, one after the other. A start at a removed offset reads
        on from the next record; one outside [log start, log end] is an OffsetOutOfRangeError.
        """
        topic = self.row
        if partition is None:
            if (start, end, limit) != (None, None, None):
                raise InvalidArgumentError(
                    "start, end and limit count within a partition: say which"
                )
            bounds = queries.partitions(self._base.catalog, topic)
        else:
            bounds = [self._bounds(topic, partition)]
        spans = [self._span(p, start, end, limit) for p in bounds]
        return Reader(self._base.catalog, self._base.root, topic, spans, columns)

    def latest(
        self,
        partition: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> Latest:
        """The current value of every key, exact at this moment, whether or not it was ever cleaned.

        Iterate it for Records, or take `to_dict()`, `to_arrow()`, `batches()`, `keys()`; `end` says
        where to go on reading. Deleted keys are absent.
        """
        numbers = None if partition is None else [operator.index(partition)]
        moment = moment_of(self._base, self.row, numbers)
        return Latest(self._base, moment, columns, progress=progress)

    def deleted(self, partition: int | None = None) -> Iterator[Deleted]:
        """The keys that are deleted and whose tombstones are still there, with when these vanish."""
        return deleted_keys(self._base, self.row, partition)

    def get(self, key: bytes | str) -> Record:
        """The last record of a key.

        Its value is None if the key is deleted, and its offset too if there is no record of it.
        """
        asked = as_key(key)
        return self._lookup.last(asked) or Record(asked, None)

    def history(self, key: bytes | str, limit: int | None = None) -> History:
        """The versions of a key that are still there, newest first; so many at the most."""
        return self._lookup.history(as_key(key), limit)

    def changes(
        self,
        since: Mapping[int, int],
        *,
        or_full: bool = False,
        columns: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> Changes:
        """One record for every key that changed since {partition: offset}; a tombstone if deleted.

        `end` of it is what to give as `since` the next time. If tombstones beyond a position have
        gone, MissedTombstonesError; with `or_full` then the whole state, which `is_full` tells.
        """
        return changes(
            self._base, self.row, since, or_full=or_full, columns=columns, progress=progress
        )

    def table(
        self,
        *,
        snapshot: str | os.PathLike[str] | None = None,
        refresh_ms: int | None = None,
        on_change: Callable[[Change], object] | None = None,
        progress: Progress | None = None,
    ) -> Table:
        """A mapping that is restored from the topic and follows it; use it as a context manager.

        `refresh()` reads what is new; with `refresh_ms` a thread does, so often. `snapshot`: a local
        file that holds it, so that a restart reads only what is new. `on_change` is called with a
        `Change` for every key that gets another value, after the table is restored.
        """
        return Table(
            self._base,
            self.row,
            snapshot=snapshot,
            refresh_ms=refresh_ms,
            on_change=on_change,
            progress=progress,
        )

    @cached_property
    def _lookup(self) -> Lookup:
        return Lookup(self._base, self.row)

    def offsets(self) -> dict[int, tuple[int, int]]:
        """Log start and log end of every partition."""
        rows = queries.partitions(self._base.catalog, self.row)
        return {row.partition: (row.log_start, row.log_end) for row in rows}

    def offset_for_timestamp(self, partition: int, timestamp_ms: int) -> int | None:
        """The first offset whose record is not older than that; None if all are older."""
        return read.first_offset_since(
            self._base.catalog, self._base.root, self.row, partition, timestamp_ms
        )

    def roll(self, partition: int | None = None) -> list[int]:
        """Close the active segment of a partition, or of all; which partitions were rolled."""
        return commits.commit_roll(self._base.catalog, self.row, partition, self._base.clock())

    def alter(self, changes: Mapping[str, object]) -> None:
        """Set settings; None as value goes back to the default."""
        topics.alter_topic(self._base.catalog, self.row, changes, self._base.clock())

    def add_partitions(self, count: int) -> None:
        """Grow to `count` partitions. Keys may land in other partitions from then on."""
        row = self.row
        row.refuse_change("partitions are added")
        topics.add_partitions(self._base.catalog, row, count, self._base.clock())

    def release(self) -> None:
        """Make a mirror an ordinary topic: Kafka is no longer its source, and it takes appends."""
        topics.release_topic(self._base.catalog, self.row, self._base.clock())

    def pause(self) -> None:
        """Let the cleaner leave the topic alone, until `resume`: no passes, no retention."""
        topics.pause_topic(self._base.catalog, self.row, True, self._base.clock())

    def resume(self) -> None:
        """Let the cleaner take the topic up again."""
        topics.pause_topic(self._base.catalog, self.row, False, self._base.clock())

    def delete(self) -> None:
        """Delete the topic; its bytes go after `file.delete.delay.ms`."""
        topics.delete_topic(self._base.catalog, self.row, self._base.clock())

    def delete_records(self, partition: int, before: int, *, dry_run: bool = False) -> int:
        """Raise log start to `before` (-1: log end); the new log start. Needs the delete policy."""
        topic = self.row
        if not topic.config.is_delete:
            policy = topic.config.policy
            raise PolicyViolationError(
                f"topic {self.name!r} has cleanup.policy={policy}; delete_records needs 'delete' in it"
            )
        p = self._bounds(topic, partition)
        log_start = p.log_end if before == -1 else operator.index(before)
        if not 0 <= log_start <= p.log_end:
            raise OffsetOutOfRangeError(self.name, partition, log_start, p.log_start, p.log_end)
        if dry_run:
            return max(log_start, p.log_start)
        new = NewLogStart(p.partition, log_start, "delete_records")
        return commits.commit_log_start(self._base.catalog, topic, new, self._base.clock())

    def erase(
        self,
        keys: Iterable[bytes | str],
        *,
        dry_run: bool = False,
        spark: SparkSession | None = None,
        runner: Runner | None = None,
    ) -> Receipt:
        """Delete keys, and the bytes of all their values, now; what was done, and what may remain.

        Compacts their partitions whole, the active segment and what min.compaction.lag.ms protects
        included, and deletes the files that were replaced without waiting for readers.
        """
        if isinstance(keys, (str, bytes)) or not isinstance(keys, Iterable):
            raise InvalidArgumentError(f"erase takes a list of keys, not {keys!r:.80}")
        jobs = runner or SparkRunner(spark or found_or_started)
        return erase(self._base, self.row, [as_key(key) for key in keys], jobs, dry_run=dry_run)

    def why(self, partition: int | None = None) -> Why:
        """What the cleaner would do with the topic now, and what holds it back, in sentences."""
        row = self.row
        if partition is not None:
            self._bounds(row, partition)
        asked = Asked(partition, retry=False)
        return why(self._base, row.name, states_of(self._base, [row]), asked)

    def settings(self) -> list[Setting]:
        """Its settings: value, default, who set it."""
        return topics.describe_topic(self._base.catalog, self.row)

    def describe(self) -> TopicDescription:
        """Partitions, segments and settings."""
        catalog, row = self._base.catalog, self.row
        segments = queries.segments(catalog, row)
        return TopicDescription(
            name=self.name,
            partitions=tuple(
                PartitionDescription(
                    partition=p.partition,
                    log_start=p.log_start,
                    log_end=p.log_end,
                    first_dirty=p.first_dirty,
                    segments=tuple(segments.get(p.partition, ())),
                )
                for p in queries.partitions(catalog, row)
            ),
            settings=tuple(self.settings()),
            source=row.source,
            paused_ms=row.paused_ms,
        )

    def _bounds(self, topic: TopicRow, number: int) -> PartitionRow:
        return queries.read_plan(self._base.catalog, topic, operator.index(number), (0, 0))[0]

    def _span(self, p: PartitionRow, start: int | None, end: int | None, limit: int | None) -> Span:
        first = p.log_start if start is None else operator.index(start)
        if not p.log_start <= first <= p.log_end:
            raise OffsetOutOfRangeError(self.name, p.partition, first, p.log_start, p.log_end)
        if (end is not None and end < first) or (limit is not None and limit < 0):
            raise InvalidArgumentError(
                f"nothing lies between start {first} and end {end}, limit {limit}"
            )
        last = p.log_end if end is None else min(operator.index(end), p.log_end)
        return Span(p.partition, first, last, limit, from_log_start=start is None)
