"""Random appends, rolls, retention and reads, against a plain reference log."""

from __future__ import annotations

import shutil
import tempfile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import lastword
from lastword.errors import OffsetOutOfRangeError
from lastword.testing import ManualClock
from tests.reference import ReferenceLog
from tests.soak import times

PARTITIONS = 2
RETENTION_MS = 1_000

keys = st.binary(max_size=3)
values = st.none() | st.binary(max_size=5)
records = st.lists(st.tuples(keys, values, st.integers(-500, 500)), max_size=5)
partitions = st.integers(0, PARTITIONS - 1)


class LogMachine(RuleBasedStateMachine):
    """A topic of two partitions with the delete policy, and a reference log for each."""

    @initialize()
    def make(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="lastword-stateful-")
        self.clock = ManualClock()
        self.store = lastword.open(self.folder, clock=self.clock)
        config = {"cleanup.policy": "delete", "retention.ms": RETENTION_MS}
        config |= {"file.delete.delay.ms": 0}
        self.topic = self.store.create_topic("t", PARTITIONS, config)
        self.reference = [ReferenceLog() for _ in range(PARTITIONS)]
        self.version = 0

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    @rule(partition=partitions, batch=records, exactly_once=st.booleans())
    def append(
        self, partition: int, batch: list[tuple[bytes, bytes | None, int]], exactly_once: bool
    ) -> None:
        stamped = [(k, v, self.clock() + ms) for k, v, ms in batch]
        rows = [(k, v, ms, (), partition) for k, v, ms in stamped]
        self.version += 1
        writer = ("app", self.version) if exactly_once else None
        self.topic.append(rows, writer=writer)
        if exactly_once:
            assert self.topic.append(rows, writer=writer).is_repeat
        self.reference[partition].append(stamped)

    @rule(partition=partitions)
    def roll(self, partition: int) -> None:
        self.topic.roll(partition)
        self.reference[partition].roll()

    @rule(ms=st.integers(0, RETENTION_MS))
    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule()
    def expire(self) -> None:
        self.store.expire()
        for log in self.reference:
            log.expire(self.clock(), RETENTION_MS)

    @rule(partition=partitions, share=st.floats(0, 1))
    def delete_records(self, partition: int, share: float) -> None:
        log = self.reference[partition]
        before = log.log_start + int(share * (log.log_end - log.log_start))
        self.topic.delete_records(partition, before)
        log.raise_log_start(before)

    @rule()
    def collect_garbage(self) -> None:
        self.store.gc()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = lastword.open(self.folder, clock=self.clock, create=False)
        self.topic = self.store.topic("t")

    @rule(partition=partitions, share=st.floats(0, 1), limit=st.none() | st.integers(0, 6))
    def read_anywhere(self, partition: int, share: float, limit: int | None) -> None:
        log = self.reference[partition]
        start = log.log_start + int(share * (log.log_end - log.log_start))
        found = [
            (r.offset, r.key, r.value, r.timestamp)
            for r in self.topic.read(partition, start, limit=limit)
        ]
        assert found == log.read(start)[:limit]

    @precondition(lambda self: hasattr(self, "reference"))
    @rule(partition=partitions, distance=st.integers(1, 5))
    def read_outside(self, partition: int, distance: int) -> None:
        log = self.reference[partition]
        for position in (log.log_start - distance, log.log_end + distance):
            with pytest.raises(OffsetOutOfRangeError):
                self.topic.read(partition, position)

    @rule(partition=partitions, ms=st.integers(-600, 600))
    def find_by_timestamp(self, partition: int, ms: int) -> None:
        when = self.clock() + ms
        log = self.reference[partition]
        expected = next((r[0] for r in log.read(log.log_start) if r[3] >= when), None)
        assert self.topic.offset_for_timestamp(partition, when) == expected

    @invariant()
    def bounds_agree_and_check_is_clean(self) -> None:
        if not hasattr(self, "reference"):
            return
        bounds = {i: (log.log_start, log.log_end) for i, log in enumerate(self.reference)}
        assert self.topic.offsets() == bounds
        assert self.store.check(quick=True).problems == ()


def test_the_log_is_the_reference_log() -> None:
    run_state_machine_as_test(
        LogMachine, settings=settings(max_examples=times(35), stateful_step_count=30)
    )
