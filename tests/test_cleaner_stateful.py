"""Random appends, rolls, settings, clock jumps, passes, crashes, retention and reads, against a
plain reference; Kafka's invariants after every step."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import lastword
from lastword.catalog import queries, schema
from lastword.cleaner.choose import Asked
from lastword.cleaner.plan import Capacity, Clean, Nothing, decide, standing
from lastword.cleaner.run import Cleaner
from lastword.config import topic_config
from lastword.jobs.runner import Runner
from lastword.model import PartitionRow, Segment, TopicRow
from lastword.passes import Horizon, PartitionState, Pass, Position
from lastword.testing import InProcess, ManualClock
from tests.reference import ReferenceLog, Row
from tests.soak import times
from tests.test_cleaner import Interfering

PARTITIONS = 2
partitions = st.integers(0, PARTITIONS - 1)
keys = st.integers(0, 6).map(lambda i: b"k%d" % i) | st.just(b"")
values = st.none() | st.binary(max_size=3)
records = st.lists(st.tuples(keys, values, st.integers(-300, 0)), min_size=1, max_size=6)
POLICIES = ("compact", "compact,delete", "delete")


class CleanerMachine(RuleBasedStateMachine):
    """A topic of two partitions; of each, a reference log and all that was ever appended."""

    @initialize(policy=st.sampled_from(POLICIES))
    def make(self, policy: str) -> None:
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.folder = tempfile.mkdtemp(prefix="lastword-stateful-", dir=memory)
        self.clock = ManualClock()
        self.store = lastword.open(self.folder, clock=self.clock)
        self.store.alter({"log.cleaner.dedupe.buffer.size": 1 << 21})
        config = {"cleanup.policy": policy, "delete.retention.ms": 500, "retention.ms": 2_000}
        config |= {"min.cleanable.dirty.ratio": 0, "file.delete.delay.ms": 0}
        self.topic = self.store.create_topic("t", PARTITIONS, config)
        self.reference = [ReferenceLog() for _ in range(PARTITIONS)]
        self.history: list[list[Row]] = [[] for _ in range(PARTITIONS)]
        self.horizons: list[list[tuple[int, int, int]]] = [[] for _ in range(PARTITIONS)]
        self.read_to = dict.fromkeys(range(PARTITIONS), 1 << 62)  # by a consumer group, if there is

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    @rule(partition=partitions, batch=records, null_key=st.booleans())
    def append(
        self, partition: int, batch: list[tuple[bytes | None, bytes | None, int]], null_key: bool
    ) -> None:
        if null_key and not self.topic.config.is_compact:
            batch = [*batch, (None, b"x", 0)]
        stamped = [(k, v, self.clock() + ms) for k, v, ms in batch]
        self.topic.append([(k, v, ms, (), partition) for k, v, ms in stamped])
        log = self.reference[partition]
        self.history[partition] += [(log.log_end + i, *row) for i, row in enumerate(stamped)]
        log.append(stamped)

    @rule(partition=partitions)
    def roll(self, partition: int) -> None:
        self.topic.roll(partition)

    @rule(ms=st.integers(0, 600))
    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(setting=st.sampled_from([
        ("cleanup.policy", "compact"), ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", "delete"), ("min.compaction.lag.ms", 0), ("min.compaction.lag.ms", 200),
        ("delete.retention.ms", 0), ("delete.retention.ms", 300), ("segment.ms", 400),
        ("segment.ms", 10_000), ("max.compaction.lag.ms", 250), ("max.compaction.lag.ms", None),
        ("min.cleanable.dirty.ratio", 0.5), ("min.cleanable.dirty.ratio", 0),
    ]))  # fmt: skip
    def alter(self, setting: tuple[str, object]) -> None:
        self.topic.alter(dict([setting]))

    @rule(force=st.booleans())
    def clean(self, force: bool) -> None:
        self.follow(self.round(force, InProcess()))

    @rule()
    def clean_until_nothing_is_left(self) -> None:
        """A second pass may drop tombstones whose horizon is now; a third finds nothing to do."""
        for _ in range(2):
            self.follow(self.round(True, InProcess()))
        assert self.round(True, InProcess()) == []

    @rule(partition=partitions, share=st.floats(0, 1))
    def read_as_a_group(self, partition: int, share: float) -> None:
        log = self.reference[partition]
        offset = log.log_start + int(share * (log.log_end - log.log_start))
        with self.store.base.catalog.write() as tx:
            tx.execute(schema.consumer_offset.delete())
            for number in range(PARTITIONS):
                self.read_to[number] = offset if number == partition else 0
                row = {"group_id": "g", "topic_id": self.topic.id, "partition": number}
                committed = {"committed": self.read_to[number], "committed_ms": self.clock()}
                tx.execute(schema.consumer_offset.insert().values(**row, **committed))

    @rule()
    def forget_the_group(self) -> None:
        with self.store.base.catalog.write() as tx:
            tx.execute(schema.consumer_offset.delete())
        self.read_to = dict.fromkeys(range(PARTITIONS), 1 << 62)

    @rule(force=st.booleans(), step=st.sampled_from(["mark", "sweep", "commit"]))
    def crash(self, force: bool, step: str) -> None:
        with pytest.MonkeyPatch.context() as dying:
            dying.setattr(Cleaner, "__exit__", lambda cleaner, *_: cleaner._stopped.set())
            dying.setattr("lastword.catalog.claims.release", lambda *_: None)
            if step == "commit":
                dying.setattr("lastword.catalog.commits._swap", lambda *_: _die())
            try:
                self.follow(self.round(force, Interfering(step, _die)))
            except KeyboardInterrupt:
                self.reopen()
                self.follow_log_start()
        self.clock.advance(60_000)  # the dead cleaner's claims expire

    @rule(partition=partitions, batch=records)
    def clean_while_others_append(
        self, partition: int, batch: list[tuple[bytes | None, bytes | None, int]]
    ) -> None:
        def act() -> None:
            self.append(partition, batch, null_key=False)

        self.follow(self.round(True, Interfering("sweep", act)))

    def round(self, force: bool, runner: Runner) -> list[Pass]:
        with Cleaner(self.store.base, runner) as cleaner:
            return list(cleaner.round([self.topic.row], Asked(force=force)).passes)

    def follow(self, passes: list[Pass]) -> None:
        """Do to the reference what the passes say they covered; what they removed is its own."""
        self.follow_log_start()
        for done in passes:
            assert done.error is None, done.error
            log, horizons = self.reference[done.partition], self.horizons[done.partition]
            before = len(log.read(0))

            lag_ms = self.topic.config.min_compaction_lag_ms
            for offset, _, _, ms in log.read(done.start):
                assert offset >= done.end or not lag_ms or ms <= self.clock() - lag_ms
            base = self.topic._base.catalog
            row = queries.partitions(base, self.topic.row)[done.partition]
            assert done.start <= done.end <= row.active_base
            log.clean(done.start, done.end, partial(self.may_go, done.partition))
            if done.end > done.start:
                retention = self.topic.config.delete_retention_ms
                horizons.append((done.start, done.end, self.clock() + retention))
            assert before - len(log.read(0)) <= sum(done.removed.values())

    def may_go(self, partition: int, offset: int) -> bool:
        """Whether a tombstone is past the horizon of the first pass that covered it, and read."""
        known = self.horizons[partition]
        at_ms = next(at for start, end, at in known if start <= offset < end)
        return at_ms <= self.clock() and offset < self.read_to[partition]

    def follow_log_start(self) -> None:
        """Retention works by segments, which passes join: its results are taken, not computed."""
        for number, (log_start, _) in self.topic.offsets().items():
            assert log_start >= self.reference[number].log_start
            self.reference[number].raise_log_start(log_start)

    @rule()
    def expire(self) -> None:
        self.store.expire()
        self.follow_log_start()

    @rule(partition=partitions, share=st.floats(0, 1))
    def delete_records(self, partition: int, share: float) -> None:
        if self.topic.config.is_delete:
            log = self.reference[partition]
            before = log.log_start + int(share * (log.log_end - log.log_start))
            self.topic.delete_records(partition, before)
            log.raise_log_start(before)

    @rule()
    def collect_garbage(self) -> None:
        self.store.gc(orphan_age_ms=0)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = lastword.open(self.folder, clock=self.clock, create=False)
        self.topic = self.store.topic("t")

    @rule(partition=partitions, share=st.floats(0, 1))
    def read_anywhere(self, partition: int, share: float) -> None:
        log = self.reference[partition]
        start = log.log_start + int(share * (log.log_end - log.log_start))
        assert self.read(partition, start) == log.read(start)

    def read(self, partition: int, start: int | None = None) -> list[Row]:
        found = self.topic.read(partition, start)
        return [(r.offset, r.key, r.value, r.timestamp) for r in found]  # type: ignore[misc]

    @invariant()
    def kafkas_guarantees_hold(self) -> None:
        if not hasattr(self, "reference"):
            return
        assert self.store.check(quick=True).problems == ()
        for number, log in enumerate(self.reference):
            found = self.read(number)
            assert found == log.read(0)
            it = iter(self.history[number])
            assert all(row in it for row in found)  # a subsequence of what was appended
            _nothing_is_lost(self.history[number], found, log.log_start)


def _die() -> None:
    raise KeyboardInterrupt


def _nothing_is_lost(history: list[Row], found: list[Row], log_start: int) -> None:
    """The last record of every key is there, unless it is a tombstone; no deleted key is back."""
    last = {row[1]: row for row in history if row[0] >= log_start and row[1] is not None}
    seen = {row[1]: row for row in found if row[1] is not None}
    for key, row in last.items():
        if row[2] is not None:
            assert seen[key] == row
        else:
            assert key not in seen or seen[key] == row


def test_the_cleaner_against_the_reference() -> None:
    run_state_machine_as_test(
        CleanerMachine, settings=settings(max_examples=times(30), stateful_step_count=40)
    )


MILLIS = st.integers(1, 1_000)


@st.composite
def states(draw: Callable[..., Any]) -> PartitionState:
    """Any partition that could be: segments with gaps between and inside them, any sections."""
    bases = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=6)))
    log_end = bases[-1] + draw(st.integers(0, 10))
    segments = []
    for base, end in zip(bases, [*bases[1:], log_end], strict=True):
        if end > base and (draw(st.booleans()) or end == log_end):
            last = draw(st.integers(base, end - 1))
            size, ms = draw(st.integers(1, 100)), draw(MILLIS)
            is_active = base == bases[-1]
            segments.append(Segment(base, last, 1, 1, size, 0, ms, ms, is_active))
    log_start = draw(st.integers(0, log_end))
    config = {
        "min.cleanable.dirty.ratio": draw(st.sampled_from([0, 0.3, 1])),
        "min.compaction.lag.ms": draw(st.sampled_from([0, 100])),
        "max.compaction.lag.ms": draw(st.sampled_from([100, 10**9])),
    }
    row = PartitionRow(1, 0, log_start, log_end, draw(st.integers(0, 80)), bases[-1], 0, None)
    at = Horizon(1, 0, 80, draw(MILLIS), draw(st.integers(0, 60)))
    read_to = sorted(draw(st.lists(st.integers(0, 80), max_size=2)))
    return PartitionState(
        TopicRow(1, "t", 1, topic_config(config)),
        row,
        tuple(segments),
        (at,),
        tuple(Position(n, "g") for n in read_to),
    )


@settings(max_examples=times(1000))
@given(states(), MILLIS, st.integers(1, 10_000), st.booleans())
def test_any_plan_keeps_the_rules(
    state: PartitionState, now_ms: int, map_bytes: int, force: bool
) -> None:
    decision = decide(state, now_ms, Capacity(map_bytes), force=force)
    at = standing(state, now_ms)
    assert state.row.log_start <= at.first_dirty
    if isinstance(decision, Nothing):
        assert decision.reason
        assert not force or not at.cleanable
        return
    assert isinstance(decision, Clean)
    assert decision.start == at.first_dirty <= decision.end
    young_ms = now_ms - state.topic.config.min_compaction_lag_ms
    for segment in state.segments:  # the bound is a segment's: covered wholly, or not at all
        is_covered = segment.base < decision.end
        is_new = decision.end > decision.start
        assert not is_new or not is_covered or segment.last_offset < decision.end
        if is_new and segment.last_offset >= at.first_dirty and is_covered:
            assert not segment.is_active
            if state.topic.config.min_compaction_lag_ms:
                assert segment.max_ms <= young_ms
    if at.cleanable and "tombstones" not in decision.cause:
        assert decision.end > decision.start  # progress, over gaps and with a map of one key
