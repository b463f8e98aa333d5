"""Publish: fill a Kafka topic from a store, a round at a time.

How far it has come is a consumer group's committed offset, one group for each topic in Kafka, so that
it is seen with `lastword groups` and tombstones wait for it. The story of a round, by what a crash after
each step leaves:

1. the topic is made in Kafka, and the group begins at log start    nothing was sent
2. Spark's Kafka sink sends the round's records                     some of them, once or more
3. the group commits                                                the next round goes on from there

So a record is sent once, or again after a crash: no more than a round's are. In a compacted topic the
last record of every key is the right one all the same: each partition is sent in order. What was begun
as the latest view and cut off goes on with the log, whose tombstones delete what has gone since.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from lastword.catalog import groups, queries
from lastword.catalog.topics import describe_topic
from lastword.errors import KafkaError, MirrorError
from lastword.foundation import Foundation
from lastword.jobs.spark import SparkRunner
from lastword.kafka.cluster import Cluster, KafkaTopic, sound
from lastword.kafka.plan import GO_ON, MOST_OFFSETS, portions
from lastword.kafka.settings import handed_over
from lastword.model import PartitionRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader


_CREATE_SECONDS = 30


class View(StrEnum):
    """Which records are sent."""

    LOG = "log"
    LATEST = "latest"


@dataclass(frozen=True)
class Publishing:
    """What is sent, and where."""

    topic: str
    to: str = ""  # its name in Kafka; the same if empty
    view: View = View.LOG
    tombstones: bool = True
    most_offsets: int = MOST_OFFSETS  # in a round
    allow_loss: bool = False
    is_append: bool = False  # even if the topic in Kafka has records already


@dataclass(frozen=True)
class PublishRound:
    """What a round sent: the offsets of each partition, and how many are left."""

    sent: Mapping[int, tuple[int, int]]
    lag: int
    seconds: float


class Publisher:
    """Sends what the topic has now. `url` is that of the store, for Spark's tasks."""

    def __init__(
        self,
        base: Foundation,
        url: str,
        cluster: Cluster,
        runner: SparkRunner,
        asked: Publishing,
    ) -> None:
        self._base, self._url, self._cluster, self._runner = base, url, cluster, runner
        self._asked = asked
        self._topic = queries.topic_named(base.catalog, asked.topic)
        self.remarks: list[str] = []
        self._refuse_mixing(is_same=True)
        self._to = self._target()
        self._refuse_mixing(is_same=self._to.partitions == self._topic.partitions)
        self._refuse_loop()
        self.group = f"publish:{cluster.id()}:{self._to.id}"
        rows = queries.partitions(base.catalog, self._topic)
        self._starts = {row.partition: row.log_start for row in rows}
        self._ends = {row.partition: row.log_end for row in rows}
        self._sent_before = self._begin()

    def round(self) -> PublishRound:
        """Send the next records, and commit."""
        began = time.perf_counter()
        done = self._committed()
        unfilled = [n for n, at in done.items() if at == self._starts[n] < self._ends[n]]
        unfilled = [n for n in unfilled if n not in self._sent_before]
        if self._asked.view is View.LATEST and unfilled:
            sent = {n: (done[n], self._ends[n]) for n in unfilled[: self._runner.tasks_at_once]}
            rows = self._latest
        else:
            sent, rows = self._next(done), self._log
        if sent:
            with self._runner.job("publish"):
                self._send(rows(sent))
        after = {n: sent[n][1] if n in sent else at for n, at in done.items()}
        self._commit(after)  # also if nothing was sent, for a group that is silent is forgotten
        left = sum(self._ends[n] - at for n, at in after.items())
        return PublishRound(sent, left, time.perf_counter() - began)

    def _target(self) -> KafkaTopic:
        """The topic in Kafka; made if it is missing."""
        name = self._asked.to or self._topic.name
        if (found := self._cluster.topics([name])) == {}:
            settings = handed_over(describe_topic(self._base.catalog, self._topic))
            self._cluster.create_topic(name, self._topic.partitions, settings)
            self.remarks.append(f"made {name} in Kafka: {self._topic.partitions} partition(s)")
            deadline = time.monotonic() + _CREATE_SECONDS
            while (found := self._cluster.topics([name])) == {}:  # until all brokers know of it
                if time.monotonic() > deadline:
                    raise KafkaError(f"topic {name!r} was made, but Kafka does not show it")
                time.sleep(0.1)
        return sound(found[name])

    def _refuse_mixing(self, is_same: bool) -> None:
        """Raise if records of one key, from several partitions, could come in any order.

        `is_same`: the topic in Kafka has as many partitions.
        """
        topic = self._topic
        if topic.is_scattered and not (is_same and self._asked.view is View.LOG):
            raise MirrorError(
                f"keys of {topic.name!r} may be in several partitions: send its log, to a topic with "
                f"{topic.partitions} partition(s), or which of their values is the last is not certain"
            )
        if not is_same:
            self.remarks.append(
                f"{self._to.name} has {self._to.partitions} partition(s) in Kafka and "
                f"{topic.partitions} here: keys are partitioned anew"
            )

    def _refuse_loop(self) -> None:
        source = self._topic.source
        if source is not None and source.topic_id == self._to.id:
            raise MirrorError(
                f"topic {self._topic.name!r} mirrors {self._to.name!r}: it is not sent back there"
            )

    def _begin(self) -> set[int]:
        """Commit log start for partitions that were never sent; those that may have been sent to.

        A topic in Kafka that others have written to is refused.
        """
        known = self._known()
        wanted = [(self._to.name, number) for number in range(self._to.partitions)]
        bounds = {n: sound(b) for (_, n), b in self._cluster.bounds(wanted).items()}
        filled = {n for n, b in bounds.items() if b.end > 0}
        if not known and filled and not self._asked.is_append:
            raise MirrorError(
                f"topic {self._to.name!r} in Kafka has records already, which were not sent from "
                "here; give another name with --to, or --append to send ours after them"
            )
        if new := {n: at for n, at in self._starts.items() if n not in known}:
            self._commit(new)
        is_same = self._to.partitions == self._topic.partitions
        return {n for n in known if (n in filled if is_same else filled)}

    def _known(self) -> dict[int, int]:
        """How far the group has come."""
        rows = groups.committed(self._base.catalog, self.group)
        return {row.partition: row.offset for row in rows if row.topic == self._topic.name}

    def _committed(self) -> dict[int, int]:
        """How far the group has come, if it has missed nothing."""
        known = self._known()
        for row in queries.partitions(self._base.catalog, self._topic):
            if row.partition in known and not self._asked.allow_loss:
                self._refuse_loss(row, known[row.partition])
        return {n: max(at, self._starts[n]) for n, at in known.items() if n in self._starts}

    def _refuse_loss(self, row: PartitionRow, at: int) -> None:
        """Raise if what follows the position is no longer all there."""
        where = f"{self._topic.name}-{row.partition}"
        if at < row.log_start:
            raise MirrorError(
                f"{where}: retention has dropped offsets {at} to {row.log_start - 1} before they were "
                f"sent; {GO_ON}"
            )
        is_begun = at > self._starts[row.partition] or row.partition in self._sent_before
        if is_begun and at < row.exact_from:
            raise MirrorError(
                f"{where}: tombstones between offsets {at} and {row.exact_from} have gone before they "
                "were sent, so deleted keys may live on in Kafka; delete the topic there and send it "
                f"anew; {GO_ON}"
            )

    def _next(self, done: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """The offsets of each partition that a round sends of the log."""
        left = {n: self._ends[n] - at for n, at in done.items() if self._ends[n] > at}
        fits = portions(left, self._asked.most_offsets)
        return {n: (done[n], done[n] + some) for n, some in fits.items()}

    def _latest(self, sent: Mapping[int, tuple[int, int]]) -> DataFrame:
        return self._source(sent).option("view", "latest").load()

    def _log(self, sent: Mapping[int, tuple[int, int]]) -> DataFrame:
        """The records in order: a task for each partition."""
        bounds = [{str(n): at[i] for n, at in sent.items()} for i in (0, 1)]
        starts, ends = (json.dumps({self._topic.name: its}) for its in bounds)
        return (
            self._source(sent)
            .options(startingOffsets=starts, endingOffsets=ends, ordered="true")
            .option("failOnDataLoss", str(not self._asked.allow_loss).lower())
            .load()
        )

    def _source(self, sent: Mapping[int, tuple[int, int]]) -> DataFrameReader:
        assigned = json.dumps({self._topic.name: list(sent)})
        reader = self._runner.session.read.format("lastword").option("store", self._url)
        return reader.option("assign", assigned).option("includeHeaders", "true")

    def _send(self, frame: DataFrame) -> None:
        columns = ["key", "value", "headers"]
        if self._to.partitions == self._topic.partitions:
            columns.append("partition")
        if not self._asked.tombstones:
            frame = frame.where("value IS NOT NULL OR key IS NULL")
        sink = frame.select(*columns).write.format("kafka").options(**self._cluster.source_options)
        sink.option("topic", self._to.name).option("includeHeaders", "true").save()

    def _commit(self, offsets: Mapping[int, int]) -> None:
        places = {(self._topic.id, number): at for number, at in offsets.items()}
        groups.note(self._base.catalog, self.group, places, self._base.clock())
