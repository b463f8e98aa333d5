"""The mirror: rounds that copy what Kafka has and the store has not.

The story of a round, by what a crash after each step leaves:

1. topics and partitions are made as in Kafka    empty topics, which the next round fills
2. tasks stage what the plan says                orphans, which `gc` finds
3. one transaction appends it, at Kafka's offsets, where log end is still what the plan saw
                                                 the copy, whole; the next round goes on from there

Log end here is the position in Kafka: there is no other note of it that could differ. Two mirrors of
one topic do not disturb each other: one of them finds log end moved, and its round changes nothing.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lastword.catalog.commits import commit_mirror, note_mirrored
from lastword.foundation import Foundation
from lastword.jobs.session import is_dead
from lastword.jobs.spark import SparkRunner
from lastword.kafka.cluster import Cluster, KafkaTopic
from lastword.kafka.copy_task import SCHEMA, CopyTask, staged_files
from lastword.kafka.counterparts import Counterparts, Wanted
from lastword.kafka.plan import Standing, Times, Trouble, judged, plan, too_late
from lastword.log.staging import discard, discarded_if_refused
from lastword.model import Copy, StagedFile

_NOTED_EVERY_MS = 60_000
_TASK_OFFSETS = 100_000  # fewer are not worth a task, and a file, of their own

Place = tuple[int, int]  # topic id and partition
Staged = defaultdict[Place, list[StagedFile]]


@dataclass(frozen=True)
class Copied:
    """A partition after a round."""

    topic: str
    partition: int
    records: int  # that this round copied
    log_end: int
    lag: int  # offsets that Kafka had more, when the round began


class Look(NamedTuple):
    """Where the logs in Kafka ended, and when."""

    at_ms: int
    ends: Mapping[Place, int]


@dataclass(frozen=True)
class MirrorRound:
    """What a round did."""

    partitions: tuple[Copied, ...]
    troubles: tuple[Trouble, ...]
    remarks: tuple[str, ...]  # about topics that were made, and settings they could not take
    bytes: int
    seconds: float
    has_moved: bool  # over offsets, with or without records

    @property
    def records(self) -> int:
        return sum(p.records for p in self.partitions)

    @property
    def lag(self) -> int:
        return sum(p.lag for p in self.partitions)


class Mirror:
    """Copies topics of a Kafka cluster into a store, a round at a time."""

    def __init__(
        self, base: Foundation, cluster: Cluster, runner: SparkRunner, wanted: Wanted
    ) -> None:
        self._base, self._cluster, self._runner, self._wanted = base, cluster, runner, wanted
        self._cluster_id = cluster.id()
        self._refused: dict[tuple[Place, int], Trouble] = {}  # at which position, and why

    @property
    def is_over(self) -> bool:
        """Whether no round can be done any more: Spark's process has ended."""
        return is_dead(self._runner.session)

    def rounds(self) -> Iterator[MirrorRound]:
        """Rounds until all is copied that Kafka has now; what comes meanwhile is for another time."""
        look = None
        while True:
            done, look = self._round(look)
            yield done
            if not (done.has_moved and done.lag):
                return

    def round(self) -> MirrorRound:
        """Copy what Kafka has now, or as much of it as a round may."""
        return self._round(None)[0]

    def _round(self, until: Look | None) -> tuple[MirrorRound, Look]:
        """Copy what Kafka has now, or had at an earlier look; also the look that counts."""
        began, now_ms = time.perf_counter(), self._base.clock()
        both = Counterparts(self._base, self._cluster, self._cluster_id, self._wanted)
        standings = {(s.topic.id, s.row.partition): s for s in both.standings()}
        look = until or Look(now_ms, {place: s.kafka.end for place, s in standings.items()})
        looked_ms, ends = look
        standings = {p: s.ending_at(ends[p]) for p, s in standings.items() if p in ends}
        known = [self._refused.get((place, s.row.log_end)) for place, s in standings.items()]
        sound = [s for s, trouble in zip(standings.values(), known, strict=True) if trouble is None]
        planned = plan(
            sound, looked_ms, self._wanted.most_offsets, allow_loss=self._wanted.allow_loss
        )
        staged = self._staged(standings, planned.copies)
        done, refused = self._judged(standings, planned.copies, staged, looked_ms)
        self._commit(standings, done, staged)
        self._note(standings.values(), looked_ms)
        told = MirrorRound(
            _after(standings, done, staged),
            (*both.troubles, *planned.troubles, *filter(None, known), *refused),
            tuple(both.remarks),
            sum(f.facts.bytes for c in done for f in staged[_place(c)]),
            time.perf_counter() - began,
            has_moved=bool(done),
        )
        return told, look

    def _judged(
        self,
        standings: Mapping[Place, Standing],
        copies: Sequence[Copy],
        staged: Staged,
        looked_ms: int,
    ) -> tuple[list[Copy], list[Trouble]]:
        """The copies that are taken, and why others are not; these are not tried again."""
        since = Times(looked_ms, self._base.clock())
        remade = self._remade(standings, copies)
        done, troubles = [], []
        for planned in copies:
            place, s = _place(planned), standings[_place(planned)]
            copy = judged(planned, s, staged[place], since)
            if s.topic.id in remade:
                trouble = Trouble(s.where, "the topic in Kafka was replaced while it was read")
            elif copy.may_miss_tombstones and not self._wanted.allow_loss:
                trouble = self._refused[place, s.row.log_end] = too_late(s, since)
            else:
                done.append(copy)
                continue
            troubles.append(trouble)
            discard(self._base.root, [file.facts.path for file in staged[place]])
        return done, troubles

    def _remade(self, standings: Mapping[Place, Standing], copies: Sequence[Copy]) -> set[int]:
        """The topics that are no longer what they were when the round began."""
        sources = {
            c.topic_id: source
            for c in copies
            if (source := standings[_place(c)].topic.source) is not None
        }
        now = self._cluster.topics({source.topic for source in sources.values()}) if sources else {}
        ids = {name: topic.id for name, topic in now.items() if isinstance(topic, KafkaTopic)}
        return {i for i, source in sources.items() if ids.get(source.topic) != source.topic_id}

    def _staged(self, standings: Mapping[Place, Standing], copies: Sequence[Copy]) -> Staged:
        """What Spark has copied, by partition."""
        staged: Staged = defaultdict(list)
        if not (wanted := [c for c in copies if c.end > c.start]):
            return staged
        of = {s.topic.id: s.topic for s in standings.values()}
        names = {t.id: t.source.topic for t in of.values() if t.source is not None}
        task = CopyTask(self._base.root, {names[c.topic_id]: of[c.topic_id] for c in wanted})
        with self._runner.job("mirror"):
            rows = (
                self._runner.session.read.format("kafka")
                .options(**self._cluster.source_options, **_ranges(names, wanted))
                .options(**_splitting(wanted, self._runner.tasks_at_once))
                .option("kafka.isolation.level", "read_committed")
                .option("includeHeaders", "true")
                .load()
            )
            for file in staged_files(rows.mapInArrow(task, SCHEMA).toArrow()):
                staged[file.topic_id, file.partition].append(file)
        return staged

    def _commit(
        self, standings: Mapping[Place, Standing], done: Sequence[Copy], staged: Staged
    ) -> None:
        if not done:
            return
        files = [f for copy in done for f in staged[_place(copy)]]
        rows = {c.topic_id: standings[_place(c)].topic for c in done}
        with discarded_if_refused(self._base.root, files):
            commit_mirror(self._base.catalog, list(rows.values()), done, files, self._base.clock())

    def _note(self, standings: Iterable[Standing], looked_ms: int) -> None:
        """Partitions with nothing to copy were complete, too; noted now and then."""
        complete = defaultdict(list)
        for s in standings:
            since = looked_ms - (s.row.mirrored_ms or 0)
            if s.kafka.end == s.row.log_end and since >= _NOTED_EVERY_MS:
                complete[s.topic.id].append(s.row.partition)
        for topic_id, numbers in complete.items():
            note_mirrored(self._base.catalog, topic_id, numbers, looked_ms)


def _place(copy: Copy) -> Place:
    return copy.topic_id, copy.partition


def _ranges(names: Mapping[int, str], copies: Iterable[Copy]) -> dict[str, str]:
    """The partitions and offsets to read, as Spark's Kafka source takes them."""
    assigned: dict[str, list[int]] = defaultdict(list)
    starts: dict[str, dict[str, int]] = defaultdict(dict)
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for copy in copies:
        name = names[copy.topic_id]
        assigned[name].append(copy.partition)
        starts[name][str(copy.partition)] = copy.start
        ends[name][str(copy.partition)] = copy.end
    return {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }


def _splitting(copies: Sequence[Copy], tasks_at_once: int) -> dict[str, str]:
    """How Spark splits what is much: a partition is one task, unless that leaves cores idle."""
    tasks = min(tasks_at_once, sum(c.end - c.start for c in copies) // _TASK_OFFSETS)
    return {"minPartitions": str(tasks)} if tasks > len(copies) else {}


def _after(
    standings: Mapping[Place, Standing], done: Sequence[Copy], staged: Staged
) -> tuple[Copied, ...]:
    """Every partition, with what the round has changed of it."""
    ends = {_place(copy): copy.end for copy in done}
    found = []
    for place, s in standings.items():
        records = sum(f.facts.records for f in staged[place]) if place in ends else 0
        log_end = ends.get(place, s.row.log_end)
        lag = max(0, s.kafka.end - max(log_end, s.kafka.start))
        found.append(Copied(s.topic.name, s.row.partition, records, log_end, lag))
    return tuple(found)
