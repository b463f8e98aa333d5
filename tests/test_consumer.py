"""Consumers: poll, commit, seek, lag; groups that share their partitions, and take over from the dead."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text

import lastword
from lastword.catalog import groups
from lastword.catalog.groups import Lease
from lastword.catalog.schema import partition
from lastword.consumer import Consumer
from lastword.errors import (
    BrokenFileError,
    ConflictError,
    InvalidArgumentError,
    LastwordError,
    NoOffsetError,
    OffsetOutOfRangeError,
    UnknownGroupError,
    UnknownTopicError,
)
from lastword.sharing import fair_shares
from lastword.store import Store
from lastword.testing import InProcess, ManualClock
from tests.conftest import postgres_store_url
from tests.notation import clean, live_paths, open_files, write
from tests.soak import times
from tests.waiting import every_wait, until


def offsets(records: list[lastword.Record]) -> list[tuple[int | None, int | None]]:
    return [(r.partition, r.offset) for r in records]


def stop_heart(consumer: Consumer) -> None:
    """As if its process were suspended."""
    consumer._closed.set()
    consumer._heart.join()
    consumer._closed.clear()


class TestPolling:
    def test_at_least_once(self, store: Store) -> None:
        topic = store.create_topic("users")
        write(topic, "a=1 b=2 | c=3*")
        with store.consumer("billing", ["users"]) as consumer:
            first = consumer.poll(max_records=2)
            assert [(r.topic, r.offset, r.key) for r in first] == [
                ("users", 0, b"a"),
                ("users", 1, b"b"),
            ]
            consumer.commit()
            assert offsets(consumer.poll()) == [(0, 2)]
            assert consumer.poll() == []
        with store.consumer("billing", ["users"]) as consumer:  # the last poll was not committed
            assert offsets(consumer.poll()) == [(0, 2)]
            write(topic, "d=4*")
            assert offsets(consumer.poll()) == [(0, 3)]
            assert consumer.position("users", 0) == 4
            consumer.commit({("users", 0): 3})
        with store.consumer("billing", ["users"]) as consumer:
            assert offsets(consumer.poll()) == [(0, 3)]
        with store.consumer("other", ["users"]) as consumer:
            assert len(consumer.poll()) == 4

    def test_many_topics_and_partitions(self, local: Store) -> None:
        for name in ("x", "y"):
            local.create_topic(name, 3).append([(str(i), name) for i in range(50)])
        with local.consumer("g", ["x", "y"]) as consumer:
            found = []
            while polled := consumer.poll(max_records=7):
                assert len(polled) <= 7
                found += polled
            assert len({(r.topic, r.partition, r.offset) for r in found}) == len(found) == 100
            for name in ("x", "y"):
                for number in range(3):
                    its = [r.offset for r in found if (r.topic, r.partition) == (name, number)]
                    assert its == list(range(len(its)))

    def test_it_waits_for_records(self, local: Store) -> None:
        topic = local.create_topic("t")
        with local.consumer("g", ["t"]) as consumer:
            assert consumer.poll(timeout_ms=1) == []
            timer = threading.Timer(0.1, lambda: topic.append([("a", "1")]))
            timer.start()
            assert offsets(consumer.poll(timeout_ms=150_000)) == [(0, 0)]
            timer.join()

    def test_seek_and_position(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 b=2 c=3*")
        with local.consumer("g", ["t"]) as consumer:
            assert consumer.assignment == [] or consumer.poll(1)
            consumer.seek("t", 0, 2)
            assert consumer.position("t", 0) == 2
            assert offsets(consumer.poll()) == [(0, 2)]
            consumer.seek("t", 0, 0)
            assert offsets(consumer.poll(1)) == [(0, 0)]
            with pytest.raises(OffsetOutOfRangeError):
                consumer.seek("t", 0, 4)
            with pytest.raises(
                InvalidArgumentError, match="is not this member's; its own are: t-0"
            ):
                consumer.seek("t", 1, 0)

    def test_positions_pass_what_was_removed(self, local: Store) -> None:
        """A tail that was compacted away is read, too."""
        topic = local.create_topic("t", config={"delete.retention.ms": 0})
        write(topic, "a=1 b=1 | a=∅")
        clean(topic)
        clean(topic)
        with local.consumer("g", ["t"]) as consumer:
            assert offsets(consumer.poll()) == [(0, 1)]
            consumer.poll()
            assert consumer.position("t", 0) == 3
            assert [(lag.offsets, lag.records) for lag in consumer.lag()] == [(0, 0)]

    def test_lag_in_offsets_and_in_records(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 b=1 a=2 b=2 a=3 | c=1 d=1*")
        with local.consumer("g", ["t"]) as consumer:
            consumer.poll(1)
            assert [(x.position, x.offsets, x.records) for x in consumer.lag()] == [(1, 6, 6)]
            clean(topic)  # which leaves 3:b=2 4:a=3 5:c=1 6:d=1
            assert [(x.position, x.offsets, x.records) for x in consumer.lag()] == [(1, 6, 4)]
            consumer.seek("t", 0, 4)
            assert [(x.offsets, x.records) for x in consumer.lag()] == [(3, 3)]

    def test_what_makes_no_sense(self, local: Store) -> None:
        local.create_topic("t")
        with pytest.raises(UnknownTopicError, match="no topic 'u'"):
            local.consumer("g", ["u"])
        none: list[str] = []
        for topics in ("t", none):
            with pytest.raises(InvalidArgumentError, match="a list of topics"):
                local.consumer("g", topics)
        for group in ("", " ", "x" * 250, None):
            with pytest.raises(InvalidArgumentError, match="a group's name"):
                local.consumer(group, ["t"])  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="did you mean 'latest'"):
            local.consumer("g", ["t"], auto_offset_reset="lastest")
        consumer = local.consumer("g", ["t"])
        with pytest.raises(InvalidArgumentError, match="1 record or more"):
            consumer.poll(0)
        consumer.close()
        with pytest.raises(InvalidArgumentError, match="closed"):
            consumer.poll()

    def test_a_topic_that_is_deleted(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1*")
        with local.consumer("g", ["t"]) as consumer:
            consumer.poll()
            topic.delete()
            clock.advance(3_000)
            with pytest.raises(UnknownTopicError):
                consumer.poll()


class TestWhatGoesWrong:
    def test_an_error_loses_nothing(self, local: Store) -> None:
        """What was read before it is handed out first; then it comes, until it is mended."""
        topic = local.create_topic("t", 2)
        write(topic, "a=1 b=1*", partition=0)
        write(topic, "c=1*", partition=1)
        write(topic, "d=1*", partition=1)
        path = Path(local.base.root.full(live_paths(topic, 1)[1]))
        path.rename(path.with_suffix(".away"))
        with local.consumer("g", ["t"]) as consumer:
            found = []

            def poll_on() -> None:
                while polled := consumer.poll():
                    found.extend(offsets(polled))

            for _ in range(3):
                with pytest.raises(BrokenFileError):
                    poll_on()
            assert sorted(found) == [(0, 0), (0, 1), (1, 0)]
            consumer.commit()
            path.with_suffix(".away").rename(path)
            assert offsets(consumer.poll()) == [(1, 1)]

    def test_offsets_that_cannot_be_committed(self, local: Store) -> None:
        write(local.create_topic("t"), "a=1*")
        with local.consumer("g", ["t"]) as consumer:
            consumer.poll()
            for bad in (2, -1):
                with pytest.raises(OffsetOutOfRangeError):
                    consumer.commit({("t", 0): bad})
            for odd in ({"t": 0}, 5):
                with pytest.raises(InvalidArgumentError, match="offsets to commit are"):
                    consumer.commit(odd)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgumentError, match="an offset is a whole number, not 'x'"):
                consumer.commit({("t", 0): "x"})  # type: ignore[dict-item]
        with pytest.raises(InvalidArgumentError, match="closed"):
            consumer.commit()
        with pytest.raises(InvalidArgumentError, match="1 ms or more"):
            local.consumer("g", ["t"], session_timeout_ms=0)

    def test_nothing_of_it_is_left_behind(self, local: Store) -> None:
        local.create_topic("t").append([(str(i), "x" * 100) for i in range(100_000)])
        before = set(threading.enumerate())
        with local.consumer("g", ["t"]) as consumer:
            consumer.poll()
        assert set(threading.enumerate()) <= before


class TestWhereItStarts:
    def test_latest(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1*")
        with local.consumer("g", ["t"], auto_offset_reset="latest") as consumer:
            assert consumer.poll() == []
        write(topic, "b=1*")  # while nobody is there, before anything was committed
        with local.consumer("g", ["t"], auto_offset_reset="latest") as consumer:
            assert offsets(consumer.poll()) == [(0, 1)]
            topic.add_partitions(2)
            write(topic, "c=1*", partition=1)
            clock.advance(3_000)
            assert offsets(consumer.poll()) == [(1, 0)]  # a new partition, from its beginning

    def test_none(self, local: Store) -> None:
        write(local.create_topic("t"), "a=1 b=1*")
        with local.consumer("g", ["t"], auto_offset_reset="none") as consumer:
            for _ in range(2):
                with pytest.raises(NoOffsetError, match="no offset of t-0, and auto_offset_reset"):
                    consumer.poll()
        local.group("g").reset("t", 1)
        with local.consumer("g", ["t"], auto_offset_reset="none") as consumer:
            assert offsets(consumer.poll()) == [(0, 1)]

    @pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
    def test_out_of_range(self, local: Store, reset: str, caplog: pytest.LogCaptureFixture) -> None:
        topic = local.create_topic("t", config={"cleanup.policy": "delete"})
        write(topic, "a=1 b=1 c=1 d=1*")
        with local.consumer("g", ["t"]) as consumer:
            consumer.poll(1)
            consumer.commit()
        topic.delete_records(0, 3)
        with local.consumer("g", ["t"], auto_offset_reset=reset) as consumer:
            if reset == "none":
                with pytest.raises(OffsetOutOfRangeError, match="offset 1 is below log start"):
                    consumer.poll()
                return
            assert offsets(consumer.poll()) == ([(0, 3)] if reset == "earliest" else [])
        assert "its offset 1 of t-0 is out of range" in caplog.text

    def test_retention_under_a_consumer(self, local: Store) -> None:
        topic = local.create_topic("t", config={"cleanup.policy": "delete"})
        write(topic, "a=1 b=1 c=1 d=1*")
        with local.consumer("g", ["t"]) as consumer:
            consumer.poll(1)
            consumer.seek("t", 0, 1)
            topic.delete_records(0, 3)
            polled = consumer.poll() or consumer.poll()
            assert offsets(polled) == [(0, 3)]

    def test_tombstones_that_went_unread(
        self, local: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        topic = local.create_topic("t", config={"delete.retention.ms": 0})
        write(topic, "a=1 b=1 | a=∅")
        with local.consumer("g", ["t"]) as consumer:
            consumer.poll(1)
            consumer.commit()
        clean(topic)
        assert clean(topic) == []  # the group holds it back
        clock.advance(8 * 86_400_000)
        clean(topic)
        with caplog.at_level(logging.WARNING), local.consumer("g", ["t"]) as consumer:
            assert offsets(consumer.poll()) == [(0, 1)]
        assert "tombstones of t-0 between offsets 1 and 3 have gone unread" in caplog.text


class TestSharing:
    def test_two_members_share_and_one_takes_over(self, store: Store, clock: ManualClock) -> None:
        topic = store.create_topic("t", 4)
        for number in range(4):
            write(topic, "a=1 b=1*", partition=number)
        one = store.consumer("g", ["t"])
        one.poll(1)
        assert one.assignment == [("t", n) for n in range(4)]
        two = store.consumer("g", ["t"])
        assert two.poll() == []  # all are taken
        clock.advance(3_000)
        one.poll(1)
        clock.advance(3_000)
        two_polled = two.poll()
        assert len(one.assignment) == len(two.assignment) == 2
        assert set(one.assignment) | set(two.assignment) == {("t", n) for n in range(4)}
        assert {("t", p) for p, _ in offsets(two_polled)} <= set(two.assignment)
        # One dies without a word: its lease ends, and two has everything.
        one._closed.set()
        one._heart.join()
        clock.advance(41_000)
        two.poll()
        assert len(two.assignment) == 2
        clock.advance(3_000)
        two.poll()
        assert len(two.assignment) == 4
        two.close()

    def test_one_that_is_dropped_is_let_go(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 | b=1*")
        dropped = local.consumer("g", ["t"], session_timeout_ms=30)
        dropped.poll(1)
        assert open_files(local)
        heart = dropped._heart
        del dropped
        heart.join(150)
        assert not heart.is_alive()
        assert open_files(local) == []

    def test_a_closed_member_leaves_at_once(self, local: Store, clock: ManualClock) -> None:
        local.create_topic("t", 2)
        one, two = (local.consumer("g", ["t"]) for _ in range(2))
        one.poll()
        two.poll()
        one.close()
        clock.advance(3_000)
        two.poll()
        assert len(two.assignment) == 2
        two.close()

    def test_who_was_taken_for_dead_cannot_commit(self, store: Store, clock: ManualClock) -> None:
        topic = store.create_topic("t")
        write(topic, "a=1 b=1 c=1*")
        slow, other = (store.consumer("g", ["t"]) for _ in range(2))
        slow.poll(2)
        stop_heart(slow)
        clock.advance(45_001)
        assert offsets(other.poll(1)) == [(0, 0)]  # from what was committed: at least once
        other.commit()
        with pytest.raises(ConflictError, match="taken over by another member"):
            slow.commit()
        assert slow.poll() == []
        assert slow.assignment == []
        slow.commit()
        assert [c.committed for c in store.group("g").describe().partitions] == [1]
        slow.close()
        other.close()

    def test_a_lease_begins_when_the_wait_for_the_lock_has_ended(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Else it may be over when it is written; and nobody dies of a wait of all."""
        store.create_topic("t", 2)
        with store.consumer("g", ["t"]) as one, store.consumer("g", ["t"]) as two:
            one.poll()
            asked_ms = clock()
            with every_wait(store, clock, 50_000):
                two.poll()
            assert two.assignment == []  # all is the other's, still
            ends = {m.id: m.until_ms for m in groups.members(store.base.catalog, "g", 0)}
            assert ends[two.member_id] == asked_ms + 50_000 + 45_000
            with every_wait(store, clock, 50_000):
                one._renew()
            (member,) = groups.members(store.base.catalog, "g", clock())
            assert (member.id, member.until_ms) == (one.member_id, clock() + 45_000)
            assert not one._is_lost

    def test_what_another_has_committed_is_not_undone(
        self, store: Store, clock: ManualClock
    ) -> None:
        write(store.create_topic("t"), "a=1 b=1 c=1 d=1*")
        slow = store.consumer("g", ["t"])
        slow.poll(1)
        stop_heart(slow)
        clock.advance(45_001)
        with store.consumer("g", ["t"]) as other:
            other.poll(3)
            other.commit()
        assert offsets(slow.poll(1)) == [(0, 3)]
        slow.commit()
        assert [p.committed for p in store.group("g").describe().partitions] == [4]
        slow.close()

    def test_a_reset_is_not_undone(self, store: Store, clock: ManualClock) -> None:
        write(store.create_topic("t"), "a=1 b=1 c=1*")
        slow = store.consumer("g", ["t"])
        slow.poll(1)
        stop_heart(slow)
        clock.advance(45_001)
        store.group("g").reset("t", 3)
        with pytest.raises(ConflictError):
            slow.commit()
        assert slow.poll() == []
        slow.close()

    def test_a_group_that_died_without_a_commit(self, local: Store, clock: ManualClock) -> None:
        local.create_topic("t")
        with (
            local.consumer("g", ["t"], auto_offset_reset="none") as consumer,
            suppress(NoOffsetError),
        ):
            consumer.poll()
            clock.advance(45_001)
        assert local.groups() == []

    def test_one_that_does_not_poll_is_not_kept_alive(
        self, local: Store, clock: ManualClock
    ) -> None:
        local.create_topic("t")
        with local.consumer("g", ["t"]) as consumer:
            consumer.poll()
            for _ in range(10):  # five minutes, in which records are worked on
                clock.advance(30_000)
                consumer._renew()
                assert local.group("g").describe().members
            clock.advance(1)
            consumer._renew()
            clock.advance(44_999)
            assert not local.group("g").describe().members
            with local.consumer("g", ["t"]) as other:
                other.poll()
                assert other.assignment == [("t", 0)]
                clock.advance(1)
                consumer._polled_ms = clock()
                consumer._renew()  # it was forgotten, and hears of it
                assert consumer._is_lost
                consumer.poll()
                assert consumer.assignment == []

    def test_new_partitions_are_shared(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t")
        with local.consumer("g", ["t"]) as consumer:
            consumer.poll()
            topic.add_partitions(3)
            clock.advance(3_000)
            consumer.poll()
            assert len(consumer.assignment) == 3

    def test_kill_minus_nine(self, catalog_url: str, tmp_path: Path) -> None:
        """Two processes; one is killed in the middle: each record is worked on at least once."""
        with lastword.open(catalog_url) as store:
            topic = store.create_topic("t", 4)
            logs = [tmp_path / "one", tmp_path / "two"]
            one, two = (
                subprocess.Popen([sys.executable, "-c", _CONSUME, catalog_url, str(log)])
                for log in logs
            )
            until(lambda: _shares(store) == [2, 2])
            topic.append([(str(i), str(i)) for i in range(400)])
            until(lambda: all(log.exists() and log.stat().st_size > 200 for log in logs))
            os.kill(one.pid, signal.SIGKILL)
            one.wait()
            topic.append([(str(i), str(i)) for i in range(400, 500)])
            until(lambda: len(_worked(logs)) == 500)
            two.terminate()
            two.wait()
            assert _worked(logs) == set(range(500))
            assert _worked(logs[:1])
            assert _worked(logs[1:])


_CONSUME = """
import contextlib, sys, time, lastword
from lastword.errors import ConflictError
store = lastword.open(sys.argv[1])
consumer = store.consumer("g", ["t"], session_timeout_ms=3000)
with open(sys.argv[2], "a") as log:
    while True:
        for record in consumer.poll(10, timeout_ms=100):
            print(record.key.decode(), file=log, flush=True)
            time.sleep(0.01)
        with contextlib.suppress(ConflictError):  # one that stood still for so long; it goes on
            consumer.commit()
"""


def _shares(store: Store) -> list[int]:
    """How many partitions each member has."""
    with suppress(UnknownGroupError):  # it has none yet
        return [len(member.partitions) for member in store.group("g").describe().members]
    return []


def _worked(logs: list[Path]) -> set[int]:
    lines = (line for log in logs for line in log.read_text().splitlines(keepends=True))
    return {int(line) for line in lines if line.endswith("\n")}


class TestGroups:
    def test_describe_reset_delete(self, store: Store, clock: ManualClock) -> None:
        topic = store.create_topic("t", 2)
        write(topic, "a=1 b=1 c=1*", partition=1)
        with store.consumer("g", ["t"]) as consumer:
            consumer.poll(2)
            consumer.commit()
            described = store.group("g").describe()
            assert [m.partitions for m in described.members] == [(("t", 0), ("t", 1))]
            assert [(p.partition, p.committed, p.lag.records) for p in described.partitions] == [
                (0, 0, 0),
                (1, 2, 1),
            ]
            for change in (
                lambda: store.group("g").reset("t", "earliest"),
                lambda: store.group("g").reset("t", "earliest", dry_run=True),
                store.group("g").delete,
            ):
                with pytest.raises(ConflictError, match="has members"):
                    change()
        assert store.groups() == ["g"]
        group = store.group("g")
        before = group.describe()
        done = group.reset("t", "latest", dry_run=True)
        assert [(r.partition, r.before, r.after) for r in done] == [(0, 0, 0), (1, 2, 3)]
        assert group.describe() == before
        group.reset("t", 1, partition=1)
        assert [p.committed for p in group.describe().partitions] == [0, 1]
        clock.advance(1000)
        write(topic, "d=1*", partition=1)
        since = datetime.fromtimestamp(clock() / 1000, UTC)
        assert [r.after for r in group.reset("t", since)] == [0, 3]
        with pytest.raises(OffsetOutOfRangeError):
            group.reset("t", 9)
        with pytest.raises(InvalidArgumentError, match="a reset goes to"):
            group.reset("t", "sideways")
        group.delete()
        assert store.groups() == []
        for missing in (store.group("gg").describe, store.group("g").delete):
            with pytest.raises(UnknownGroupError):
                missing()

    def test_a_group_holds_tombstones_back_and_why_says_so(
        self, store: Store, clock: ManualClock
    ) -> None:
        topic = store.create_topic("t", config={"delete.retention.ms": 10})
        write(topic, "a=1 b=1 | a=∅")
        with store.consumer("slow", ["t"]) as consumer:
            consumer.poll(1)  # which makes the group known; nothing is committed but the start
            clean(topic)
            clock.advance(10)
            assert clean(topic) == []
            assert "consumer group 'slow' has read only up to offset 0" in str(topic.why())
            (deleted,) = topic.deleted()
            assert deleted.held_by == "slow"
            consumer.poll()
            consumer.commit()
        (done,) = clean(topic)
        assert done.removed["tombstone"] == 1
        assert topic.latest().to_dict() == {b"b": b"1"}

    def test_a_living_group_holds_tombstones_back_even_if_it_has_nothing_to_commit(
        self, store: Store, clock: ManualClock
    ) -> None:
        topic = store.create_topic("t", config={"delete.retention.ms": 10})
        write(topic, "a=1*")
        with store.consumer("idle", ["t"]) as consumer:
            consumer.poll()
            consumer.commit()
            for _ in range(8):
                clock.advance(86_400_000)
                consumer.poll()
                consumer.commit()
            write(topic, "a=∅*")
            clean(topic)
            clock.advance(10)
            assert clean(topic) == []
            assert [r.value for r in consumer.poll()] == [None]

    def test_a_topic_is_deleted_while_groups_commit(
        self, postgres_url: str, tmp_path: Path
    ) -> None:
        """No deadlock: one is first, and then the other finds what it left."""
        with lastword.open(postgres_store_url(postgres_url, tmp_path / "data")) as store:
            for turn in range(10):
                topic = store.create_topic("t", 20)
                topic.append([(str(i), "x") for i in range(200)])
                consumers = [store.consumer(f"g{n}", ["t"]) for n in range(3)]

                def work(consumer: Consumer) -> None:
                    with suppress(UnknownTopicError, ConflictError):
                        while True:
                            consumer.poll(3)
                            consumer.commit()
                            consumer._shared_ms = None

                threads = [threading.Thread(target=work, args=(c,)) for c in consumers]
                errors: list[object] = []
                hook, threading.excepthook = threading.excepthook, errors.append
                for thread in threads:
                    thread.start()
                threading.Event().wait(0.05 + 0.02 * turn)
                topic.delete()
                for thread in threads:
                    thread.join(150)
                threading.excepthook = hook
                assert errors == []
                for consumer in consumers:
                    consumer.close()

    def test_a_topic_is_deleted_while_claims_of_the_dead_are_taken(
        self, postgres_url: str, tmp_path: Path
    ) -> None:
        """No deadlock: partitions are locked before what goes with them."""
        errors: list[LastwordError] = []

        def tried(work: Callable[[], object]) -> None:
            try:
                work()
            except UnknownTopicError:
                return
            except LastwordError as error:
                errors.append(error)

        with lastword.open(postgres_store_url(postgres_url, tmp_path / "data")) as store:
            catalog = store.base.catalog
            for _ in range(20):
                topic = store.create_topic("t", 40).row
                for g in range(4):
                    groups.share(catalog, f"g{g}", "dead", [topic.id], Lease(lambda: 1, 1))
                works: list[Callable[[], object]] = [
                    partial(
                        groups.share, catalog, f"g{g}", "new", [topic.id], Lease(lambda: 10, 10)
                    )
                    for g in range(4)
                ]
                works.append(store.topic("t").delete)
                threads = [threading.Thread(target=tried, args=(work,)) for work in works]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert errors == []


@pytest.mark.parametrize("way", ["leave", "reset", "delete"])
def test_claims_are_let_go_after_their_partitions_are_locked(
    postgres_url: str, tmp_path: Path, way: str
) -> None:
    """Else a topic that is deleted meanwhile, and takes them with it, may wait for us as we for it."""
    with lastword.open(postgres_store_url(postgres_url, tmp_path / "data")) as store:
        catalog, topic = store.base.catalog, store.create_topic("t", 2)
        groups.share(catalog, "g", "member", [topic.row.id], Lease(lambda: 1, 1))
        work = {
            "leave": partial(groups.leave, catalog, "g", "member"),
            "reset": partial(groups.reset, catalog, "g", {}, 10),
            "delete": partial(groups.delete, catalog, "g", 10),
        }[way]
        thread = threading.Thread(target=work)
        waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        with catalog.write() as tx:
            tx.execute(select(partition).where(partition.c.partition == 1).with_for_update())
            thread.start()
            until(lambda: tx.scalar(waiting) or not thread.is_alive())
            assert thread.is_alive()
        thread.join()
        assert groups.members(catalog, "g", 0) == []


members = st.dictionaries(
    st.sampled_from("ABCDE"), st.frozensets(st.integers(1, 3), min_size=1), max_size=5
)


@given(members, st.sets(st.tuples(st.integers(1, 3), st.integers(0, 5))), st.data())
def test_shares_are_fair(
    consumers: dict[str, frozenset[int]], places: set[tuple[int, int]], data: st.DataObject
) -> None:
    holders = st.sampled_from([*"ABCDEF"])
    held = data.draw(st.dictionaries(st.sampled_from(sorted(places)), holders)) if places else {}
    shares = fair_shares(places, consumers, held)
    counts = {m: sum(1 for x in shares.values() if x == m) for m in consumers}
    for place in places:
        able = [m for m in consumers if place[0] in consumers[m]]
        assert (place in shares) == bool(able)
        if able:
            assert shares[place] in able
            assert counts[shares[place]] <= min(counts[m] for m in able) + 1
    assert fair_shares(places, consumers, shares) == shares  # and then it stays


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("poll"), st.integers(0, 2), st.integers(1, 4)),
            st.tuples(st.just("commit"), st.integers(0, 2)),
            st.tuples(st.just("crash"), st.integers(0, 2)),
            st.tuples(st.just("append"), st.integers(1, 5)),
            st.tuples(st.sampled_from(["clean", "wait", "long"])),
        ),
        max_size=25,
    )
)
@settings(max_examples=times(30))
def test_any_history(history: list[tuple[str, int]]) -> None:
    """Whoever dies: what was committed was polled, and all that is left of the log is polled."""
    clock = ManualClock()
    with (
        tempfile.TemporaryDirectory() as folder,
        lastword.open(folder + "/s", clock=clock) as store,
    ):
        topic = store.create_topic("t", 3, {"min.cleanable.dirty.ratio": 0})
        consumers: dict[int, Consumer] = {}
        polled: set[tuple[int | None, int | None]] = set()
        committed: dict[int, int | None] = {}
        count = 0
        for step in history:
            clock.advance(10)
            match step:
                case ("append", n):
                    topic.append([(f"k{(count + i) % 4}", str(count + i)) for i in range(n)])
                    count += n
                case ("poll", who, most):
                    if who not in consumers:
                        consumers[who] = store.consumer("g", ["t"])
                    polled |= set(offsets(consumers[who].poll(most)))
                case ("commit", who) if who in consumers:
                    try:
                        consumers[who].commit()
                    except ConflictError:
                        assert consumers[who].assignment
                case ("crash", who) if who in consumers:
                    gone = consumers.pop(who)
                    gone._closed.set()
                    gone._heart.join()
                case ("clean",):
                    topic.roll()
                    store.clean(runner=InProcess())
                case ("wait",):
                    clock.advance(3_000)
                case ("long",):
                    clock.advance(45_000)
            was, committed = committed, {p.partition: p.committed for p in _described(store)}
            assert all((committed[n] or 0) >= (was[n] or 0) for n in was)
            for record in topic.read():
                if (record.offset or 0) < (committed.get(record.partition or 0) or 0):
                    assert (record.partition, record.offset) in polled
        clock.advance(45_000)
        for consumer in consumers.values():
            consumer.close()
        with store.consumer("g", ["t"]) as last:
            while found := last.poll():
                polled |= set(offsets(found))
        assert {(r.partition, r.offset) for r in topic.read()} <= polled


def _described(store: Store) -> list[lastword.groups.GroupPartition]:
    return list(store.group("g").describe().partitions) if store.groups() else []
