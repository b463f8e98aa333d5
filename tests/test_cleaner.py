"""Passes, whole, in this process: what survives, what is written down, what goes wrong."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, select

from lastword import retention
from lastword.catalog import claims, cleaning, retired, schema
from lastword.catalog.commits import commit_clean
from lastword.cleaner import choose, run
from lastword.cleaner.choose import Asked
from lastword.cleaner.mark import mark
from lastword.cleaner.metrics import (
    MOST_TOPICS,
    OTHERS,
    PassTotals,
    Totals,
    as_prometheus,
    gauges,
)
from lastword.cleaner.overview import KeyCount, TopicOverview, overview
from lastword.cleaner.run import Cleaner
from lastword.cleaner.service import Service, Told
from lastword.cleaner.sweep import sweep
from lastword.cleaner.verdicts import verdicts
from lastword.errors import (
    CatalogError,
    ConflictError,
    InvalidArgumentError,
    PolicyViolationError,
    UnknownTopicError,
)
from lastword.jobs.runner import Outcome, R, U, packed
from lastword.jobs.spark import SparkRunner
from lastword.passes import Pass, Swap
from lastword.store import Store
from lastword.testing import InProcess, ManualClock
from lastword.topic import Topic
from tests.notation import clean, cleaned, live_paths, shown, write
from tests.waiting import every_wait

DAY_MS = 86_400_000
ADDRESS_BOOK = [
    ("1001", "4 Privet Dr"),
    ("1002", "221B Baker Street"),
    ("1003", "Milkman Road"),
    ("1002", "21 Jump St"),
    ("1001", "Paper St"),
    ("1001", "Paper Road 21"),
]


def latest(topic: Topic, partition: int = 0) -> dict[Any, Any]:
    """The last value of each key, as a reader from the start sees it; deleted keys absent."""
    found = {r.key: r.value for r in topic.read(partition)}
    return {key: value for key, value in found.items() if value is not None}


class TestWorkedExamples:
    """Those of docs/how-it-works.md, on every catalog and every file system."""

    def test_the_address_book(self, store: Store) -> None:
        users = store.create_topic("users")
        users.append(ADDRESS_BOOK)
        passes = store.clean("users", force=True, runner=InProcess())
        assert [r.offset for r in users.read(partition=0)] == [2, 3, 5]
        done = passes[0]
        assert (done.records_in, done.records_out) == (6, 3)
        assert done.removed == {"obsolete": 3, "tombstone": 0, "null key": 0}
        assert (done.start, done.end, done.keys, done.shards) == (0, 6, 3, 1)
        assert store.passes() == passes
        assert store.check().is_clean

    def test_head_and_tail(self, any_data: Store) -> None:
        users = any_data.create_topic("users", config={"min.cleanable.dirty.ratio": 0})
        write(users, "1001=a 1002=b 1003=c")
        clean(users)
        write(users, "1002=d 1001=e 1001=f")
        (done,) = clean(users, force=False)
        assert shown(users, offsets=True) == "2:1003=c 3:1002=d 5:1001=f"
        assert (done.keys, done.start, done.end) == (2, 3, 6)  # the map held 1002→3, 1001→5

    def test_a_tombstone_in_two_passes(self, any_data: Store, clock: ManualClock) -> None:
        topic = any_data.create_topic("t", config={"min.cleanable.dirty.ratio": 0})
        write(topic, "a=1 | a=∅ | b=1*")
        assert cleaned(topic, force=False) == "1:a=∅ | 2:b=1*"
        assert b"a" not in latest(topic)
        clock.advance(DAY_MS - 1)
        assert clean(topic, force=False) == []
        assert shown(topic) == "a=∅ | b=1*"
        clock.advance(1)
        (done,) = clean(topic, force=False)
        assert (done.cause, done.removed["tombstone"]) == ("tombstones past their horizon", 1)
        assert shown(topic, offsets=True) == "2:b=1*"
        assert clean(topic, force=False) == []

    def test_positions_of_removed_records(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, " ".join(f"k{i}=1" for i in range(36)) + " a=1 a=2 a=3")
        clean(topic)
        for position in (36, 37, 38):
            assert [r.offset for r in topic.read(0, position)] == [38]
        assert [r.offset for r in topic.read(0, 39)] == []


class TestWhatSurvives:
    def test_offsets_order_timestamps_and_headers(self, any_data: Store) -> None:
        topic = any_data.create_topic("t")
        records = [
            ("a", "1", 1_699_999_999_000, (("h", b"1"), ("h", None))),
            ("b", "x" * 300_000, 1_699_999_998_000),
            ("a", "2", 1_699_999_997_000, (("é", b"\x00"),)),
            ("", "", 1_699_999_996_000),
        ]
        topic.append(records)
        before = list(topic.read(0))
        clean(topic)
        assert list(topic.read(0)) == before[1:]

    def test_the_active_segment_is_untouched(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 a=2 | a=3 a=4*")
        assert cleaned(topic, force=False) == "1:a=2 | 2:a=3 3:a=4*"

    def test_force_rolls_it(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 a=2 | a=3 a=4*")
        assert cleaned(topic) == "3:a=4"

    def test_quiet_active_segments_are_rolled_when_they_are_due(
        self, local: Store, clock: ManualClock
    ) -> None:
        topic = local.create_topic("t", config={"segment.ms": 1000})
        write(topic, "a=1 a=2*")
        clock.advance(1000)
        assert clean(topic, force=False) == []
        assert not topic.why().partitions[0].is_eligible
        clock.advance(1)
        assert topic.why().partitions[0].is_eligible
        assert cleaned(topic, force=False) == "1:a=2"
        lagging = local.create_topic("lag", config={"max.compaction.lag.ms": 10})
        write(lagging, "a=1 a=2*")
        clock.advance(11)
        assert cleaned(lagging, force=False) == "1:a=2"

    def test_everything_may_be_obsolete(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 b=1 | a=2 b=2 | a=3 b=3")
        assert cleaned(topic) == "4:a=3 5:b=3"
        assert topic.offsets() == {0: (0, 6)}

    def test_an_empty_result(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", config={"delete.retention.ms": 0})
        write(topic, "a=1 | a=∅")
        assert cleaned(topic) == "1:a=∅"
        assert cleaned(topic) == ""
        assert topic.offsets() == {0: (0, 2)}
        assert [r.offset for r in topic.read(0, 0)] == []
        write(topic, "a=2*")
        assert shown(topic, offsets=True) == "2:a=2*"
        assert local.check().is_clean

    def test_null_keys_of_a_time_under_delete(self, any_data: Store) -> None:
        topic = any_data.create_topic("t", config={"cleanup.policy": "delete"})
        topic.append([(None, "x"), ("a", "1"), (None, None), ("a", "2")])
        with pytest.raises(PolicyViolationError, match="only topics with 'compact' in it"):
            any_data.clean("t", runner=InProcess())
        topic.alter({"cleanup.policy": "compact"})
        (done,) = clean(topic)
        assert done.removed == {"obsolete": 1, "tombstone": 0, "null key": 2}
        assert shown(topic, offsets=True) == "3:a=2"

    def test_a_policy_changed_back_and_forth(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 a=2")
        clean(topic)
        topic.alter({"cleanup.policy": "delete", "retention.ms": -1})
        topic.append([(None, "x"), ("a", "3")])
        topic.roll()
        assert clean(topic) == []
        topic.alter({"cleanup.policy": "compact"})
        assert cleaned(topic) == "3:a=3"

    def test_compact_and_delete_in_one_round(self, local: Store, clock: ManualClock) -> None:
        policy = {"cleanup.policy": "compact,delete", "retention.ms": 1000}
        topic = local.create_topic("t", config=policy)
        write(topic, "a=1 old=1")
        clock.advance(1001)
        write(topic, "b=1 b=2")
        assert cleaned(topic, force=False) == "3:b=2"
        assert topic.offsets() == {0: (2, 4)}

    def test_log_start_in_the_middle_of_a_file(self, local: Store) -> None:
        topic = local.create_topic(
            "t", config={"cleanup.policy": "compact,delete", "retention.ms": -1}
        )
        write(topic, "a=1 b=1 a=2 b=2 c=1")
        topic.delete_records(0, 2)
        assert cleaned(topic) == "2:a=2 3:b=2 4:c=1"
        write(topic, "c=2")
        assert cleaned(topic) == "2:a=2 3:b=2 5:c=2"
        assert local.check().is_clean

    def test_a_file_of_which_nothing_readable_is_left(self, local: Store) -> None:
        policy = {"cleanup.policy": "compact,delete", "retention.ms": -1}
        topic = local.create_topic("t", config=policy)
        write(topic, "z=1 a=1 | a=2")
        topic.delete_records(0, 1)
        (done,) = clean(topic)
        assert done.removed["below log start"] == 1
        assert shown(topic, offsets=True) == "2:a=2"
        assert local.check().is_clean

    def test_min_compaction_lag_protects_and_ends_the_section(
        self, local: Store, clock: ManualClock
    ) -> None:
        topic = local.create_topic("t", config={"min.compaction.lag.ms": 1000})
        write(topic, "a=1 a=2")
        clock.advance(1000)
        write(topic, "a=3 a=4")
        assert cleaned(topic) == "1:a=2 | 2:a=3 3:a=4"
        clock.advance(999)
        assert clean(topic) == []
        clock.advance(1)
        assert cleaned(topic) == "3:a=4"

    def test_segments_are_joined_and_large_files_stay(self, local: Store) -> None:
        topic = local.create_topic("t", config={"segment.bytes": 1 << 20})
        for key in "abcd":
            value = random.Random(key).randbytes(100_000)
            topic.append([(key, value), (f"{key}{key}", value)])
            topic.roll()
        before = live_paths(topic)
        (done,) = clean(topic)
        assert live_paths(topic) == before  # no dead records, not small: kept, but joined
        assert (done.files_kept, done.files_written) == (4, 0)
        sizes = [s.files for s in topic.describe().partitions[0].segments]
        assert sizes == [4]
        topic.append([("c", "small")])
        (done,) = clean(topic)
        assert (done.files_kept, done.files_written) == (4, 1)
        assert [path in before for path in live_paths(topic)] == [True, True, False, True, False]
        assert [r.offset for r in topic.read(0)] == [0, 1, 2, 3, 5, 6, 7, 8]

    def test_one_partition_is_expired_and_cleaned_alone(
        self, local: Store, clock: ManualClock
    ) -> None:
        policy = {"cleanup.policy": "compact,delete", "retention.ms": 1000}
        topic = local.create_topic("t", 2, policy)
        for p in range(2):
            write(topic, "a=1", partition=p)
        clock.advance(1001)
        local.clean("t", partition=0, runner=InProcess())
        assert topic.offsets() == {0: (1, 1), 1: (0, 1)}
        with pytest.raises(UnknownTopicError, match="has no partition 9"):
            local.clean("t", partition=9, runner=InProcess())

    def test_partitions_are_cleaned_each_by_itself(self, store: Store) -> None:
        topic = store.create_topic("t", partitions=3)
        for p in range(3):
            write(topic, f"a={p} a={p + 1}", partition=p)
        assert len(clean(topic)) == 3
        assert [shown(topic, p, offsets=True) for p in range(3)] == ["1:a=1", "1:a=2", "1:a=3"]
        write(topic, "a=9", partition=1)
        assert [p.partition for p in store.clean(partition=1, force=True, runner=InProcess())] == [
            1
        ]


class TestTombstones:
    def test_the_horizon_is_that_of_the_first_pass(self, local: Store, clock: ManualClock) -> None:
        """Later passes, and a changed delete.retention.ms, do not move it."""
        topic = local.create_topic("t", config={"delete.retention.ms": 1000})
        write(topic, "a=1 | a=∅")
        clean(topic)
        clock.advance(500)
        topic.alter({"delete.retention.ms": 5000})
        write(topic, "b=1 | b=∅")
        assert cleaned(topic) == "1:a=∅ 3:b=∅"
        clock.advance(499)
        assert clean(topic, force=False) == []
        clock.advance(1)
        assert cleaned(topic, force=False) == "3:b=∅"
        clock.advance(4499)
        assert clean(topic, force=False) == []
        clock.advance(1)
        assert cleaned(topic, force=False) == ""

    def test_one_that_is_superseded_goes_like_any_record(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 a=∅ a=2")
        (done,) = clean(topic)
        assert done.removed == {"obsolete": 2, "tombstone": 0, "null key": 0}

    def test_a_consumer_group_holds_them_back(self, store: Store, clock: ManualClock) -> None:
        topic = store.create_topic("t", config={"delete.retention.ms": 0})
        write(topic, "a=∅ b=∅ c=1")
        self.commit(store, topic, "fast", 3, clock())
        self.commit(store, topic, "slow", 1, clock())
        clean(topic)
        assert cleaned(topic, force=False) == "1:b=∅ 2:c=1"  # slow has read 0, not 1
        assert clean(topic, force=False) == []
        assert "consumer group 'slow' has read only up to offset 1" in str(topic.why())
        clock.advance(10_080 * 60_000)
        assert clean(topic, force=False) == []
        clock.advance(1)  # it has not committed for offsets.retention.minutes
        assert cleaned(topic, force=False) == "2:c=1"

    @staticmethod
    def commit(
        store: Store, topic: Topic, group: str, offset: int, now_ms: int, partition: int = 0
    ) -> None:
        with store.base.catalog.write() as tx:
            tx.execute(
                schema.consumer_offset.insert().values(
                    group_id=group,
                    topic_id=topic.id,
                    partition=partition,
                    committed=offset,
                    committed_ms=now_ms,
                )
            )

    def test_a_group_is_active_as_a_whole(self, local: Store, clock: ManualClock) -> None:
        """It commits one partition, and holds back what it has not read of the others."""
        topic = local.create_topic("t", 3, {"delete.retention.ms": 0})
        for p in range(3):
            write(topic, "a=∅ b=1", partition=p)
        self.commit(local, topic, "g", 1, clock(), partition=1)
        clock.advance(8 * DAY_MS)
        self.commit(local, topic, "g", 2, clock(), partition=0)
        clean(topic)
        clean(topic, force=False)
        assert [shown(topic, p) for p in range(3)] == ["b=1", "b=1", "a=∅ b=1"]

    def test_a_group_that_comes_in_during_the_pass(self, store: Store, clock: ManualClock) -> None:
        topic = store.create_topic("t", config={"delete.retention.ms": 0})
        write(topic, "a=∅ b=1")
        clean(topic)
        join = Interfering("sweep", lambda: self.commit(store, topic, "new", 0, clock()))
        (done,) = clean(topic, force=False, runner=join)
        assert "abandoned: consumer group 'new' came in" in (done.error or "")
        assert shown(topic) == "a=∅ b=1"

    def test_they_do_not_uncover_what_a_lag_protects(
        self, local: Store, clock: ManualClock
    ) -> None:
        """Log start has cut through a segment that is too young to be cleaned."""
        config = {"cleanup.policy": "compact,delete", "retention.ms": -1}
        config |= {"delete.retention.ms": 100, "min.cleanable.dirty.ratio": 0}
        topic = local.create_topic("t", config=config)
        write(topic, "a=1 | x=∅")
        clean(topic)
        topic.alter({"min.compaction.lag.ms": 10**9})
        write(topic, "b=1 b=2 b=3 b=4 | c=1*")
        topic.delete_records(0, 3)
        clock.advance(200)
        clean(topic, force=False)
        assert shown(topic, offsets=True) == "3:b=2 4:b=3 5:b=4 | 6:c=1*"

    def test_those_below_log_start_do_not_make_it_eligible(
        self, local: Store, clock: ManualClock
    ) -> None:
        config = {"cleanup.policy": "compact,delete", "delete.retention.ms": 100}
        topic = local.create_topic("t", config=config)
        write(topic, "x=∅")
        clean(topic)
        write(topic, "b=1 b=2 b=3*")
        topic.delete_records(0, 2)
        clock.advance(200)
        assert not topic.why().partitions[0].is_eligible

    def test_a_group_that_reads_on_lets_them_go(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", config={"delete.retention.ms": 0})
        write(topic, "a=∅ b=1")
        self.commit(local, topic, "g", 0, clock())
        clean(topic)
        assert clean(topic, force=False) == []
        with local.base.catalog.write() as tx:
            tx.execute(schema.consumer_offset.update().values(committed=1))
        assert cleaned(topic, force=False) == "1:b=1"

    def test_retention_took_them_first(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic(
            "t",
            config={
                "cleanup.policy": "compact,delete",
                "delete.retention.ms": 10,
                "retention.ms": 5,
            },
        )
        write(topic, "a=∅ | b=1*")
        clean(topic, force=False)
        clock.advance(10)
        topic.append([("c", "1")])
        clean(topic, force=False)
        assert clean(topic, force=False) == []
        assert local.check().is_clean


class TestChoosing:
    def test_dirtiest_first_and_only_what_is_dirty_enough(self, local: Store) -> None:
        for name, log in (("clean", "a=1 b=1 c=1 d=1"), ("dirty", "a=1")):
            topic = local.create_topic(name)
            write(topic, log)
            clean(topic)
        write(local.topic("dirty"), "b=2 c=2 d=2 | e=2 f=2")
        write(local.topic("clean"), "a=2")
        passes = local.clean(runner=InProcess())
        assert [p.topic for p in passes] == ["dirty"]

    def test_a_round_takes_no_more_than_the_driver_can_keep(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = local.create_topic("t", partitions=3)
        for p in range(3):
            write(topic, "a=1 a=2", partition=p)
        monkeypatch.setattr(choose, "_ROUND_RECORDS", 4)
        assert [len(clean(topic)) for _ in range(3)] == [2, 1, 0]
        monkeypatch.setattr(choose, "_ROUND_RECORDS", 1)
        write(topic, "a=3 a=4", partition=2)
        assert len(clean(topic)) == 1

    def test_a_small_buffer_ends_passes_earlier_oldest_first(self, local: Store) -> None:
        local.alter({"log.cleaner.dedupe.buffer.size": 1_048_577})
        topic = local.create_topic("t", config={"segment.bytes": 1 << 30})
        rows = [(f"k{i}", "v") for i in range(200_000)]
        for _ in range(2):
            topic.append(rows)
            topic.roll()
        (done,) = clean(topic)
        assert (done.end, done.keys) == (200_000, 200_000)
        assert done.shards > 16
        (done,) = clean(topic)
        assert (done.start, done.end, done.records_out) == (200_000, 400_000, 200_000)

    def test_where_nothing_is_eligible_spark_is_not_started(self, local: Store) -> None:
        local.create_topic("t").append([("a", "1")])

        def start() -> Any:
            raise AssertionError("started")

        assert local.clean_round([], Asked(), SparkRunner(start)).passes == ()

    def test_names_are_texts(self, local: Store) -> None:
        with pytest.raises(InvalidArgumentError, match=r"a topic's name is a text, not \['t'\]"):
            local.clean(["t"])  # type: ignore[arg-type]

    def test_a_dry_run_says_what_force_would_do(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 a=2 b=∅*")
        (plan,) = local.plan("t", force=True)
        found = [(v.offset, v.is_kept, v.sentence) for v in verdicts(local.base, plan)]  # type: ignore[arg-type]
        assert found == [
            (0, False, "obsolete, superseded by offset 1"),
            (1, True, "kept"),
            (2, True, "tombstone until 2023-11-15 22:13:20.000Z"),
        ]
        assert shown(topic) == "a=1 a=2 b=∅*"
        assert local.passes() == []

    def test_verdicts_on_tombstones_and_null_keys(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", config={"delete.retention.ms": 0})
        write(topic, "a=∅ b=∅")
        TestTombstones.commit(local, topic, "g", 1, clock())
        clean(topic)
        topic.alter({"cleanup.policy": "delete"})
        topic.append([(None, "x")])
        topic.alter({"cleanup.policy": "compact"})
        (plan,) = local.plan("t", force=True)
        said = [(v.is_kept, v.sentence) for v in verdicts(local.base, plan)]  # type: ignore[arg-type]
        time = "2023-11-14 22:13:20.000Z"
        assert said == [
            (False, f"tombstone, past its horizon of {time}"),
            (True, f"tombstone until {time}, held back by consumer group 'g'"),
            (False, "null key"),
        ]


class TestFilesThatStay:
    def test_they_are_not_in_the_account(self, local: Store) -> None:
        topic = local.create_topic("t", config={"segment.bytes": 1 << 20})
        topic.append([("big", random.Random(7).randbytes(900_000))])
        topic.roll()
        write(topic, "a=1 a=2")
        (done,) = clean(topic)
        found = cleaning.pass_with_files(local.base.catalog, done.id)
        assert found is not None
        assert [(c.fate, c.base_offset) for c in found[1]] == [
            ("written", 1),
            ("rewritten", 1),
        ]
        assert (done.files_kept, done.files_rewritten) == (1, 1)


class TestPaused:
    def test_the_cleaner_leaves_it_alone(self, store: Store, clock: ManualClock) -> None:
        settings = {"cleanup.policy": "compact,delete", "retention.ms": 1000, "segment.ms": 1000}
        topic = store.create_topic("t", config=settings)
        write(topic, "a=1 a=2 | a=3*")
        topic.pause()
        clock.advance(DAY_MS)
        assert store.clean("t", force=True, runner=InProcess()) == []
        assert store.expire("t") == []
        assert shown(topic) == "a=1 a=2 | a=3*"
        assert str(topic.why()).startswith("t-0: would not be cleaned now: it was paused at 20")
        with pytest.raises(PolicyViolationError, match="is paused; resume it"):
            topic.erase(["a"], runner=InProcess())
        topic.alter({"cleanup.policy": "delete"})
        assert "it was paused" in str(topic.why())

    def test_retention_that_was_planned_before(self, store: Store, clock: ManualClock) -> None:
        settings = {"cleanup.policy": "delete", "retention.ms": 1000}
        topic = store.create_topic("t", config=settings)
        write(topic, "a=1 | b=1*")
        clock.advance(DAY_MS)
        row = topic.row
        topic.pause()
        assert retention.expire(store.base.catalog, [row], clock()) == []
        assert shown(topic) == "a=1 | b=1*"

    def test_it_is_resumed(self, store: Store) -> None:
        topic = store.create_topic("t")
        write(topic, "a=1 a=2")
        topic.pause()
        topic.pause()
        topic.resume()
        assert cleaned(topic) == "1:a=2"


class TestAccountOfFiles:
    def test_what_became_of_each(self, store: Store) -> None:
        topic = store.create_topic("t")
        write(topic, "a=1 | b=1 a=2 | c=1*")
        topic.append([("d", "1")])
        (done,) = clean(topic)
        found = cleaning.pass_with_files(store.base.catalog, done.id)
        assert found is not None
        its, changes = found
        assert its == done
        assert [
            (c.fate, c.base_offset, c.last_offset, c.records, c.removed, c.into) for c in changes
        ] == [
            ("written", 1, 4, 4, {}, None),
            ("emptied", 0, 0, 1, {"obsolete": 1}, None),
            ("merged", 1, 2, 2, {}, 1),
            ("merged", 3, 3, 1, {}, 1),
            ("merged", 4, 4, 1, {}, 1),
        ]
        assert cleaning.pass_with_files(store.base.catalog, 99) is None

    def test_a_rewritten_file(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 b=1 a=2")
        (done,) = clean(topic)
        found = cleaning.pass_with_files(local.base.catalog, done.id)
        assert found is not None
        new, gone = found[1]
        assert (gone.fate, gone.removed, gone.into) == ("rewritten", {"obsolete": 1}, 0)
        assert (new.fate, new.records, new.bytes) == ("written", 2, done.bytes_out)


class Interfering(InProcess):
    """Does something to the store before a step of the pass."""

    def __init__(self, step: str, act: Callable[[], object]) -> None:
        self.step, self.act = step, act

    def run(self, step: str, work: Callable[[U], R], units: Sequence[U]) -> Outcome[R]:
        if step == self.step:
            self.act()
        return super().run(step, work, units)


class TestMeanwhile:
    """What others do in the middle of a pass."""

    @pytest.fixture
    def topic(self, store: Store) -> Topic:
        policy = {"cleanup.policy": "compact,delete", "retention.ms": 1000}
        topic = store.create_topic("t", config=policy)
        write(topic, "a=1 | a=2 b=1 | c=1*")
        return topic

    @pytest.mark.parametrize("step", ["mark", "sweep"])
    def test_appends_do_not_matter(self, store: Store, topic: Topic, step: str) -> None:
        clean(topic, force=False, runner=Interfering(step, lambda: write(topic, "a=3 | d=1*")))
        assert shown(topic, offsets=True) == "1:a=2 2:b=1 | 3:c=1 4:a=3 | 5:d=1*"
        assert store.check().is_clean

    @pytest.mark.parametrize("step", ["mark", "sweep"])
    def test_the_topic_is_deleted(self, store: Store, topic: Topic, step: str) -> None:
        row = topic.row
        with Cleaner(store.base, Interfering(step, topic.delete)) as cleaner:
            (abandoned,) = cleaner.round([row], Asked()).passes
        assert (abandoned.error or "").startswith("abandoned: no topic 't'")
        assert store.passes() == []  # they go with the topic
        assert store.check(orphan_age_ms=0).is_clean

    def test_the_policy_is_switched(self, store: Store, topic: Topic) -> None:
        before = shown(topic, offsets=True)
        act = Interfering("sweep", lambda: topic.alter({"cleanup.policy": "delete"}))
        self.abandoned(topic, act, "topic 't' is no longer compacted")
        assert shown(topic, offsets=True) == before
        assert store.check(orphan_age_ms=0).is_clean  # what was swept is deleted

    def test_it_is_paused(self, store: Store, topic: Topic) -> None:
        (done,) = store.clean("t", force=True, runner=Interfering("sweep", topic.pause))
        assert done.error == "abandoned: topic 't' was paused; nothing was changed"

    def test_retention_runs(self, store: Store, topic: Topic, clock: ManualClock) -> None:
        def expire() -> None:
            clock.advance(1001)
            topic.append([("d", "1")])
            store.expire()

        self.abandoned(topic, Interfering("sweep", expire), "files of t-0 were retired")
        assert topic.offsets() == {0: (3, 5)}
        assert store.check(orphan_age_ms=0).is_clean

    def test_retention_and_gc_take_the_files_away(
        self, store: Store, topic: Topic, clock: ManualClock
    ) -> None:
        def vanish() -> None:
            topic.alter({"file.delete.delay.ms": 0})
            clock.advance(1001)
            topic.append([("d", "1")])
            store.expire()
            store.gc()

        self.abandoned(topic, Interfering("mark", vanish), "is no longer part of the log")
        assert topic.why().partitions[0].sentences[0].endswith("in the active segment")

    def test_log_start_moves_into_what_is_covered(self, store: Store, topic: Topic) -> None:
        act = Interfering("sweep", lambda: topic.delete_records(0, 2))
        clean(topic, force=False, runner=act)
        assert [r.offset for r in topic.read(0)] == [2, 3]
        assert store.check().is_clean

    def test_another_cleaner_has_taken_it_over(self, store: Store, topic: Topic) -> None:
        def take_over() -> None:
            with store.base.catalog.write() as tx:
                tx.execute(schema.partition.update().values(claim="another"))

        self.abandoned(topic, Interfering("sweep", take_over), "taken over by another cleaner")
        assert shown(topic) == "a=1 | a=2 b=1 | c=1*"

    def abandoned(self, topic: Topic, runner: InProcess, why: str) -> None:
        """The pass changed nothing, says why, and is no fault of the partition's."""
        (done,) = clean(topic, force=False, runner=runner)
        assert (done.error or "").startswith("abandoned: ")
        assert why in (done.error or "")
        (state,) = cleaning.states(topic._base.catalog, [topic.row], 0)
        assert state.row.failures == 0
        (row,) = cleaning.passes(topic._base.catalog, [topic.id])
        assert row.error == done.error

    def test_retention_leaves_a_partition_alone_that_another_cleaner_works_on(
        self, store: Store, topic: Topic, clock: ManualClock
    ) -> None:
        def another() -> None:
            clock.advance(1001)
            topic.append([("d", "1")])
            assert clean(topic, force=False) == []
            assert topic.offsets()[0][0] == 0

        clean(topic, force=False, runner=Interfering("sweep", another))
        assert clean(topic, force=False) == []
        assert topic.offsets()[0][0] == 3

    def test_a_reader_goes_on_with_the_old_files(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", config={"file.delete.delay.ms": 1000})
        for i in range(40):
            topic.append([("a", str(i)), ("b", str(i))])
        reader = iter(topic.read(0))
        seen = [next(reader).offset]
        clean(topic)
        clock.advance(1001)
        local.gc()
        seen += [r.offset for r in reader]
        assert all(a < b for a, b in pairwise(x for x in seen if x is not None))
        assert set(seen) >= {78, 79}
        assert len(seen) < 40  # it did not go on with files that it had opened before

    def test_another_cleaner_was_faster_between_plan_and_claim(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 a=2")
        claim = claims.claim

        def late(*args: Any) -> bool:
            monkeypatch.setattr(claims, "claim", claim)
            assert len(clean(topic)) == 1
            return claim(*args)

        monkeypatch.setattr(claims, "claim", late)
        assert clean(topic) == []
        assert len(local.passes()) == 1

    def test_two_cleaners_at_once(self, store: Store) -> None:
        topic = store.create_topic("t", partitions=2)
        for p in range(2):
            write(topic, "a=1 a=2", partition=p)
        others: list[int] = []
        act = Interfering("mark", lambda: others.extend(p.partition for p in clean(topic)))
        mine = [p.partition for p in clean(topic, runner=act)]
        assert (mine, others) == ([0, 1], [])  # all were claimed
        assert all(shown(topic, p) == "a=2" for p in range(2))


class TestClaims:
    def test_a_dead_cleaners_claim_expires(self, store: Store, clock: ManualClock) -> None:
        topic = store.create_topic("t")
        write(topic, "a=1 a=2")
        (state,) = cleaning.states(store.base.catalog, [topic.row], 0)
        claims.start_cleaner(store.base.catalog, "dead", clock())
        assert claims.claim(store.base.catalog, state, "dead", clock)
        assert not claims.claim(store.base.catalog, state, "me", clock)
        assert clean(topic) == []
        assert "a cleaner is at work on it" in str(topic.why())
        clock.advance(claims.CLAIM_MS - 1)
        assert clean(topic) == []
        clock.advance(1)
        assert len(clean(topic)) == 1

    def test_it_is_renewed_while_the_pass_runs(self, store: Store, clock: ManualClock) -> None:
        topic = store.create_topic("t")
        write(topic, "a=1 a=2")
        (state,) = cleaning.states(store.base.catalog, [topic.row], 0)
        claims.claim(store.base.catalog, state, "me", clock)
        clock.advance(claims.CLAIM_MS - 1)
        claims.renew(store.base.catalog, "me", clock)
        clock.advance(claims.CLAIM_MS - 1)
        assert not claims.claim(store.base.catalog, state, "other", clock)
        claims.release(store.base.catalog, "me")
        assert claims.claim(store.base.catalog, state, "other", clock)

    def test_it_begins_when_the_wait_for_the_lock_has_ended(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Else it may be over when it is written; and no claim ends by a wait of all."""
        topic = store.create_topic("t")
        write(topic, "a=1 a=2")
        catalog = store.base.catalog
        (state,) = cleaning.states(catalog, [topic.row], 0)
        with every_wait(store, clock, claims.CLAIM_MS):
            assert claims.claim(catalog, state, "me", clock)
        assert not claims.claim(catalog, state, "other", clock)
        with every_wait(store, clock, claims.CLAIM_MS):
            assert not claims.claim(catalog, state, "other", clock)
            claims.renew(catalog, "me", clock)
        assert not claims.claim(catalog, state, "other", clock)

    def test_a_cleaner_beats_while_it_works(
        self, local: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(run, "CLAIM_MS", 30)
        topic = local.create_topic("t")
        write(topic, "a=1 a=2")
        beats = threading.Semaphore(0)
        renew = claims.renew

        def noticed(*args: Any) -> None:
            renew(*args)
            beats.release()

        monkeypatch.setattr(claims, "renew", noticed)
        beaten: list[bool] = []
        waits = Interfering("mark", lambda: beaten.append(beats.acquire(timeout=150)))
        assert len(clean(topic, runner=waits)) == 1
        assert beaten == [True]

    def test_claims_are_released_when_it_is_interrupted(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 a=2")

        def interrupt() -> None:
            raise KeyboardInterrupt

        for step in ("mark", "sweep"):
            with pytest.raises(KeyboardInterrupt):
                clean(topic, runner=Interfering(step, interrupt))
        assert shown(topic) == "a=1 a=2"
        assert cleaned(topic) == "1:a=2"


class TestFailures:
    def broken(self, store: Store) -> Topic:
        topic = store.create_topic("t", partitions=2)
        for p in range(2):
            write(topic, "a=1 a=2", partition=p)
        path = Path(store.base.root.full(live_paths(topic, 0)[0]))
        path.write_bytes(path.read_bytes()[:-10])
        return topic

    def test_one_bad_partition_does_not_stop_the_others(self, store: Store) -> None:
        topic = self.broken(store)
        failed, done = sorted(clean(topic), key=lambda p: p.partition)
        assert shown(topic, 1) == "a=2"
        assert done.error is None
        assert "bytes, the catalog says" in (failed.error or "")
        assert failed.records_out == failed.records_in
        assert sum(failed.removed.values()) == 0
        assert [p.error is None for p in store.passes(partition=0)] == [False]
        assert topic.describe().partitions[0].first_dirty == 0
        assert "the last pass failed, to be tried again at" in str(topic.why(0))

    def test_it_is_retried_each_time_later(self, local: Store, clock: ManualClock) -> None:
        topic = self.broken(local)
        clean(topic)
        waits = []
        for _ in range(9):
            (state, _) = cleaning.states(local.base.catalog, [topic.row], 0)
            waits.append((state.row.retry_after_ms - clock()) // 1000)
            with Cleaner(local.base, InProcess()) as cleaner:
                asked = Asked(retry=False)
                assert cleaner.round([topic.row], asked).passes == ()
                clock.now_ms = state.row.retry_after_ms
                (failed,) = cleaner.round([topic.row], asked).passes
                assert failed.error is not None
        assert waits == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]

    def test_success_forgives(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 a=2")
        path = Path(local.base.root.full(live_paths(topic)[0]))
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        assert clean(topic)[0].error is not None
        path.write_bytes(whole)
        assert cleaned(topic) == "1:a=2"
        assert cleaning.states(local.base.catalog, [topic.row], 0)[0].row.failures == 0

    def test_books_that_do_not_add_up_are_not_committed(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 a=2")
        monkeypatch.setattr(run, "sweep", _Lying(sweep))
        (failed,) = clean(topic)
        assert "the books of the pass do not add up" in (failed.error or "")
        assert shown(topic) == "a=1 a=2"
        assert local.check(orphan_age_ms=0).is_clean
        monkeypatch.setattr(run, "sweep", sweep)
        monkeypatch.setattr(run, "mark", _Forgetting(mark))
        (failed,) = clean(topic)
        assert "records that live of the cleanable section" in (failed.error or "")

    def test_a_commit_whose_fate_is_unknown_keeps_the_files(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 a=2")

        def lost(*args: Any) -> None:
            commit_clean(*args)
            raise CatalogError("here", "went away")

        monkeypatch.setattr(run, "commit_clean", lost)
        (done,) = clean(topic)
        assert "went away" in (done.error or "")
        assert shown(topic, offsets=True) == "1:a=2"
        assert local.check().is_clean

    def test_trouble_with_one_commit_does_not_stop_the_others(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = local.create_topic("t", partitions=2)
        for p in range(2):
            write(topic, "a=1 a=2", partition=p)

        def deadlock(catalog: Any, of: Any, done: Pass, *rest: Any) -> Pass:
            if done.partition == 0:
                raise CatalogError("here", "deadlock detected")
            return commit_clean(catalog, of, done, *rest)

        monkeypatch.setattr(run, "commit_clean", deadlock)
        errors = {p.partition: p.error for p in clean(topic)}
        assert errors[1] is None
        assert "whether it was committed is not known" in (errors[0] or "")


class _Lying:
    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.work = work

    def __call__(self, unit: Any) -> Any:
        swept = self.work(unit)
        return replace(swept, offset_sum=swept.offset_sum + 1)


class _Forgetting(_Lying):
    def __call__(self, unit: Any) -> Any:
        return replace(self.work(unit), keys=0)


class TestCommit:
    def test_a_file_that_is_no_longer_live_is_a_conflict(self, store: Store) -> None:
        topic = store.create_topic("t")
        write(topic, "a=1 a=2")
        (done,) = clean(topic)
        with store.base.catalog.write() as tx:
            tx.execute(schema.partition.update().values(claim="me"))
            gone = tx.execute(
                select(schema.file.c.path).where(schema.file.c.retired_commit.is_not(None))
            ).scalar_one()
        for swap in (Swap(retired=(gone,)), Swap(moved={gone: 0})):
            with pytest.raises(ConflictError, match="were retired during the pass"):
                commit_clean(store.base.catalog, topic.row, done, swap, "me", 0)
        assert len(store.passes()) == 1

    def test_many_files_go_in_one_commit(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = store.create_topic("t")
        for i in range(4):
            topic.append([("a", str(i))])
        monkeypatch.setattr(retired.at_most, "__defaults__", (2,))
        (done,) = clean(topic)
        assert done.files_rewritten == 3
        assert shown(topic, offsets=True) == "3:a=3"


class TestService:
    def serve(self, store: Store, rounds: int, act: Callable[[int], None]) -> list[Told]:
        """So many rounds; before the next, act."""
        told: list[Told] = []
        stop = threading.Event()

        def tell(what: Told) -> None:
            told.append(what)
            act(len(told))
            if len(told) == rounds:
                stop.set()

        stop.wait = lambda timeout=None: stop.is_set()  # type: ignore[method-assign]
        Service(store.base, InProcess, tell, stop).run()
        return told

    def test_it_cleans_expires_and_collects(self, local: Store, clock: ManualClock) -> None:
        compact = local.create_topic("c", config={"file.delete.delay.ms": 1000})
        deleting = local.create_topic("d", config={"cleanup.policy": "delete", "retention.ms": 10})
        write(compact, "a=1 a=2")
        write(deleting, "a=1 a=2")

        def act(round_: int) -> None:
            clock.advance(1_000 if round_ == 1 else 300_000)

        first, second, third = self.serve(local, 3, act)
        assert [p.topic for p in first.done.passes] == ["c"]
        assert first.sleep_ms == 0  # it has cleaned: it looks again at once
        assert [e.topic for e in (*second.done.expired, *third.done.expired)] == ["d"]
        assert [f.kind for f in second.deleted] == ["retired"]
        assert third.sleep_ms == 15_000

    def test_settings_take_effect_in_the_next_round(self, local: Store) -> None:
        topic = local.create_topic("t", config={"min.cleanable.dirty.ratio": 1})
        write(topic, "a=1 a=2")

        def act(round_: int) -> None:
            if round_ == 1:
                local.alter({"log.cleaner.backoff.ms": 7})
                topic.alter({"min.cleanable.dirty.ratio": 0})

        first, second, third = self.serve(local, 3, act)
        assert (first.sleep_ms, len(first.done.passes)) == (15_000, 0)
        assert len(second.done.passes) == 1
        assert third.sleep_ms == 7

    def test_it_can_be_switched_off(self, local: Store, clock: ManualClock) -> None:
        local.alter({"log.cleaner.enable": False})
        both = {"cleanup.policy": "compact,delete", "retention.ms": 1}
        topic = local.create_topic("t", config=both)
        write(topic, "a=1 a=2")
        clock.advance(1_000_000)
        (told,) = self.serve(local, 1, lambda _: None)
        assert (told.done.passes, told.done.expired) == ((), ())

    def test_a_failed_partition_does_not_keep_it_busy(self, local: Store) -> None:
        topic = TestFailures().broken(local)
        told = self.serve(local, 2, lambda _: None)
        assert [len(t.done.passes) for t in told] == [2, 0]
        topic.delete()

    def test_trouble_is_told_and_survived(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 a=2")
        states = cleaning.states

        def gone(*_: Any) -> None:
            raise CatalogError("here", "went away")

        monkeypatch.setattr(cleaning, "states", gone)
        told = self.serve(
            local, 2, lambda n: monkeypatch.setattr(cleaning, "states", states) if n == 1 else None
        )
        assert told[0].trouble == "catalog of here: went away"
        assert len(told[1].done.passes) == 1

    def test_a_service_that_stops_is_not_dead(self, local: Store, clock: ManualClock) -> None:
        self.serve(local, 1, lambda _: None)
        clock.advance(10 * claims.CLAIM_MS)
        assert claims.cleaners_seen(local.base.catalog, clock())[1] == 0
        claims.start_cleaner(local.base.catalog, "crashes", clock())
        clock.advance(claims.CLAIM_MS + 1)
        assert claims.cleaners_seen(local.base.catalog, clock())[1] == 1
        clock.advance(8 * DAY_MS)
        assert claims.cleaners_seen(local.base.catalog, clock())[1] == 0  # it was long ago


def test_two_services_share_a_store(store: Store) -> None:
    """Both look for work as fast as they can, while a writer writes."""
    topic = store.create_topic("t", 4, {"min.cleanable.dirty.ratio": 0, "delete.retention.ms": 0})
    store.alter({"log.cleaner.backoff.ms": 1})
    told: list[Told] = []
    stop = threading.Event()
    services = [
        threading.Thread(target=Service(store.base, InProcess, told.append, stop).run)
        for _ in range(2)
    ]
    for service in services:
        service.start()
    expected: dict[str, str | None] = {}
    random_ = random.Random(1)
    for i in range(60):
        rows = [(f"k{random_.randrange(30)}", random_.choice([None, str(i)])) for _ in range(5)]
        topic.append(rows)
        expected |= dict(rows)
        topic.roll()
    stop.set()
    for service in services:
        service.join()
    assert [t.trouble for t in told if t.trouble] == []
    assert [p.error for t in told for p in t.done.passes if p.error] == []
    clean(topic)
    found = {key.decode(): value for p in range(4) for key, value in latest(topic, p).items()}
    assert found == {key: value.encode() for key, value in expected.items() if value is not None}
    assert store.check().is_clean


def test_old_passes_are_not_read_to_find_horizons(local: Store) -> None:
    """A topic that is cleaned all day has very many of them."""
    topic = local.create_topic("t")
    write(topic, "a=1 a=∅")
    clean(topic)
    asked: list[tuple[str, Any]] = []

    def note(
        _connection: object, _cursor: object, sql: str, parameters: object, *_: object
    ) -> None:
        asked.append((sql, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    cleaning.states(local.base.catalog, [topic.row], 0)
    event.remove(Engine, "before_cursor_execute", note)
    ((sql, parameters),) = [(sql, its) for sql, its in asked if "first_tombstone" in sql]
    with local.base.catalog.read() as tx:
        plan = tx.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", parameters).all()
    assert [step.detail for step in plan] == ["SEARCH pass USING INDEX horizon (topic_id=?)"]


class TestMetrics:
    def values(self, store: Store) -> dict[str, float]:
        return {g.name: g.value for g in gauges(overview(store.base))}

    def test_of_a_store_that_was_never_cleaned(self, local: Store) -> None:
        assert self.values(local) == {
            "max-dirty-percent": 0,
            "cleaner-recopy-percent": 0,
            "max-clean-time-secs": 0,
            "max-compaction-delay-secs": 0,
            "max-buffer-utilization-percent": 0,
            "uncleanable-partitions-count": 0,
            "uncleanable-bytes": 0,
            "time-since-last-run-ms": -1,
            "dead-worker-count": 0,
        }

    def test_after_a_round(self, store: Store, clock: ManualClock) -> None:
        config = {"max.compaction.lag.ms": 1000, "segment.ms": DAY_MS}
        topic = store.create_topic("t", config=config)
        write(topic, "a=1 a=2")
        clock.advance(5_500)
        assert self.values(store)["max-dirty-percent"] == 100
        clean(topic)
        clock.advance(7)
        found = self.values(store)
        assert found["max-dirty-percent"] == 0
        assert found["max-compaction-delay-secs"] == 4
        assert found["cleaner-recopy-percent"] > 0
        assert found["time-since-last-run-ms"] == 7

    def test_a_failed_partition(self, local: Store) -> None:
        topic = TestFailures().broken(local)
        clean(topic)
        found = self.values(local)
        assert found["uncleanable-partitions-count"] == 1
        assert found["uncleanable-bytes"] == topic.describe().partitions[0].bytes

    def test_as_prometheus_reads_them(self, local: Store) -> None:
        text = self.text(local)
        assert "# TYPE lastword_max_dirty_percent gauge\nlastword_max_dirty_percent 0.0\n" in text

    def text(self, store: Store, totals: PassTotals | None = None) -> str:
        totals = totals or PassTotals()
        return as_prometheus(overview(store.base), totals.count(store.base.catalog))

    def test_topics_and_passes(self, store: Store) -> None:
        topic, totals = store.create_topic("t"), PassTotals()
        write(topic, "a=1 a=2 b=∅*")
        before = self.text(store, totals)
        assert 'lastword_topic_records{topic="t"} 3.0' in before
        assert 'lastword_topic_tombstones{topic="t"} 1.0' in before
        assert "lastword_pass_seconds_count 0.0" in before
        clean(topic)
        for _ in range(2):  # a pass is counted once
            after = self.text(store, totals)
            assert 'lastword_passes_total{outcome="done"} 1.0' in after
            assert 'lastword_removed_records_total{reason="obsolete"} 1.0' in after
            assert 'lastword_pass_seconds_bucket{le="+Inf"} 1.0' in after
            assert 'lastword_topic_records{topic="t"} 2.0' in after

    def test_each_metric_of_a_topic_and_of_passes(self, local: Store, clock: ManualClock) -> None:
        config = {"max.compaction.lag.ms": 1_000, "min.cleanable.dirty.ratio": 0.25}
        topic = local.create_topic("t", 2, config)
        write(topic, "a=1 a=2 b=∅")
        assert self.numbers(local)['lastword_removed_records_total{reason="null key"}'] == 0
        (done,) = clean(topic)
        began_s = clock() / 1000
        write(topic, "a=3 c=1 | d=1*")
        write(topic, "e=1 | f=1*", partition=1)
        clock.advance(5_500)
        topic.pause()
        size = topic.describe().bytes
        expected = {
            "bytes": size,
            "records": 7,
            "tombstones": 1,
            "dirty_ratio": 1,
            "min_cleanable_dirty_ratio": 0.25,
            "due_partitions": 0,  # paused
            "last_pass_timestamp_seconds": began_s,
            "failed_partitions": 0,
            "overdue_seconds": 4.5,
            "paused": 1,
        }
        found = self.numbers(local)
        of_t = {name: found[f'lastword_topic_{name}{{topic="t"}}'] for name in expected}
        assert of_t == expected
        topic.resume()
        assert self.numbers(local)['lastword_topic_due_partitions{topic="t"}'] == 2
        for what, count in (
            ("read", done.bytes_read),
            ("written", done.bytes_written),
            ("freed", done.bytes_in - done.bytes_out),
        ):
            assert found[f'lastword_cleaner_bytes_total{{what="{what}"}}'] == count > 0
        assert found["lastword_pass_bytes_sum"] == done.bytes_in
        assert found["lastword_pass_seconds_sum"] == pytest.approx(sum(done.seconds.values()))

    def numbers(self, store: Store) -> dict[str, float]:
        lines = [line for line in self.text(store).splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def test_buckets(self) -> None:
        seconds = Totals().seconds
        for value in (0.05, 0.1, 2, 4, 5_000):
            seconds.add(value)
        (metric,) = [seconds.metric("lastword_x", "x")]
        found = {s.labels["le"]: s.value for s in metric.samples if "le" in s.labels}
        assert [found[le] for le in ("0.1", "0.5", "1", "5", "3600", "+Inf")] == [2, 2, 2, 4, 4, 5]

    def test_totals_that_are_read_do_not_change(self, local: Store) -> None:
        topic, totals = local.create_topic("t"), PassTotals()
        before = totals.count(local.base.catalog)
        write(topic, "a=1 a=2")
        clean(topic)
        assert totals.count(local.base.catalog).outcomes["done"] == 1
        assert before.outcomes["done"] == 0

    def test_a_pass_that_lost_to_others_did_not_fail(self, local: Store) -> None:
        mine = local.create_topic("mine")
        write(mine, "a=1 a=2")
        (lost,) = clean(mine, runner=Interfering("sweep", mine.pause))
        passes = clean(TestFailures().broken(local))
        assert [p.outcome for p in (lost, *passes)] == ["abandoned", "failed", "done"]
        text = self.text(local)
        for outcome in ("done", "failed", "abandoned"):
            assert f'lastword_passes_total{{outcome="{outcome}"}} 1.0' in text

    def test_many_topics_have_few_series(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lastword.cleaner.metrics.MOST_TOPICS", 1)
        assert MOST_TOPICS > 1
        for name, log in (("z.large", "a=1 b=2 c=3*"), ("small", "a=1*"), ("small2", "a=1 b=1*")):
            write(local.create_topic(name), log)
        local.topic("small").pause()
        text = self.text(local)
        assert 'lastword_topic_records{topic="z.large"} 3.0' in text
        assert f'lastword_topic_records{{topic="{OTHERS}"}} 3.0' in text
        assert f'lastword_topic_paused{{topic="{OTHERS}"}} 1.0' in text
        assert 'topic="small' not in text


class TestOverview:
    def test_sizes_keys_and_the_last_pass(self, store: Store, clock: ManualClock) -> None:
        topic = store.create_topic("t", partitions=2)
        write(topic, "a=1 a=2 b=1 b=∅")
        store.create_topic("empty", config={"cleanup.policy": "delete"})
        empty, seen = overview(store.base).topics
        assert (empty.name, empty.records, empty.policy, empty.last_pass_ms) == (
            "empty",
            0,
            "delete",
            None,
        )
        assert (seen.partitions, seen.records, seen.tombstones, seen.eligible) == (2, 4, 1, 1)
        assert (seen.dirty_ratio, seen.threshold, seen.is_well) == (1.0, 0.5, True)
        assert seen.keys == KeyCount(0, 3, 3)
        clean(topic)
        write(topic, "c=1 c=2*")
        seen = overview(store.base).topics[1]
        assert (seen.records, seen.last_pass_ms) == (4, clock())
        assert seen.keys == KeyCount(1, 2, 3)

    def test_probable_keys_are_as_many_new_ones_as_the_last_pass_found(
        self, local: Store, clock: ManualClock
    ) -> None:
        """Which is exact where records keep coming as they did."""
        updates = local.create_topic("updates")
        carts = local.create_topic("carts", config={"delete.retention.ms": 0})
        for n in range(5):
            clock.advance(1)
            if n in (2, 3):
                clean(updates)
                clean(carts)
            write(updates, "a=1 b=1 c=1 a=2 b=2 c=2")  # always the same keys
            write(carts, f"a{n}=1 b{n}=1 a{n}=∅")  # one comes to stay, one goes again
        seen = {t.name: t.keys for t in overview(local.base).topics}
        assert seen["updates"] == KeyCount(3, 3, 15)
        assert seen["carts"].probably == 5

    def test_what_is_due_is_what_a_cleaner_that_came_now_would_find(
        self, local: Store, clock: ManualClock
    ) -> None:
        """It would roll a quiet active segment first; sizes are as they are all the same."""
        quiet = local.create_topic("quiet", config={"max.compaction.lag.ms": 1_000})
        write(quiet, "a=1 a=2*")
        old = local.create_topic(
            "old", config={"cleanup.policy": "compact,delete", "retention.ms": 2_000}
        )
        write(old, "a=1 a=2 | b=1*")
        assert [t.eligible for t in overview(local.base).topics] == [1, 0]
        assert "retention would drop the oldest segment at" in str(old.why())
        clock.advance(5_000)
        seen = {t.name: t for t in overview(local.base).topics}
        assert (seen["quiet"].eligible, seen["quiet"].dirty_ratio) == (1, 1.0)
        assert (seen["quiet"].overdue_ms, seen["quiet"].is_well) == (4_000, False)
        assert "before that, the active segment would be rolled: it is old enough" in str(
            quiet.why()
        )
        assert (seen["old"].records, seen["old"].eligible) == (3, 0)
        quiet.pause()
        assert "the active segment, which rolls at" not in str(quiet.why())
        assert "retention would drop 2 segments, 3 records" in str(old.why())
        old.pause()
        assert "retention" not in str(old.why())

    def test_a_cleaner_that_is_switched_off(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 a=2")
        assert overview(local.base).is_enabled
        assert "switched off" not in str(topic.why())
        local.alter({"log.cleaner.enable": False})
        assert not overview(local.base).is_enabled
        assert "the cleaner service is switched off" in str(topic.why())
        topic.alter({"cleanup.policy": "delete"})  # retention goes on
        assert "switched off" not in str(topic.why())

    def test_what_a_cleaner_is_at_work_on(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", partitions=2)
        write(topic, "a=1 a=2")
        seen: list[TopicOverview] = []

        def look() -> None:
            seen.extend(overview(local.base).topics)

        clean(topic, runner=Interfering("mark", look))
        assert [(t.at_work, t.eligible) for t in seen] == [(1, 0)]
        assert [(t.at_work, t.eligible) for t in overview(local.base).topics] == [(0, 0)]

    def test_a_failed_pass_is_not_the_last(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 a=2")
        clean(topic)
        done_ms = clock()
        write(topic, "a=3")
        for path in live_paths(topic):
            Path(local.base.root.full(path)).unlink()
        clock.advance(1_000)
        (failed,) = clean(topic)
        assert failed.error
        (seen,) = overview(local.base).topics
        assert (seen.last_pass_ms, seen.failed) == (done_ms, 1)

    def test_keys_that_may_be_in_several_partitions(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 b=1 c=1")
        clean(topic)
        topic.add_partitions(2)
        write(topic, "a=2 b=2", partition=1)
        clean(topic)
        (seen,) = overview(local.base).topics
        assert (seen.keys.least, seen.keys.most) == (3, 5)

    def test_tombstones_elsewhere_may_bury_keys_of_several_partitions(
        self, local: Store, clock: ManualClock
    ) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1")
        clean(topic)
        topic.add_partitions(2)
        clock.advance(1)
        write(topic, "a=∅", partition=1)
        clean(topic)
        assert topic.latest().to_dict() == {}
        (seen,) = overview(local.base).topics
        assert (seen.keys.least, seen.keys.most) == (0, 1)

    def test_keys_below_log_start(self, local: Store) -> None:
        topic = local.create_topic("t", config={"cleanup.policy": "compact,delete"})
        write(topic, "a=1 b=1 c=1")
        clean(topic)
        topic.delete_records(0, before=2)
        (seen,) = overview(local.base).topics
        assert (seen.keys.least, seen.keys.most) == (1, 3)

    def test_what_is_wrong(self, local: Store, clock: ManualClock) -> None:
        config = {"max.compaction.lag.ms": 1000, "delete.retention.ms": 0}
        overdue = local.create_topic("overdue", config=config)
        write(overdue, "a=1 a=∅ | b=1*")
        clock.advance(3_000)
        (seen,) = overview(local.base).topics
        assert (seen.overdue_ms, seen.is_well) == (2_000, False)
        for group, read in (("slow", 1), ("quick", 9), ("sleepy", 1)):
            with local.consumer(group, ["overdue"]) as consumer:
                consumer.poll(max_records=read)
                consumer.commit()
        clean(overdue)
        clock.advance(1)
        (seen,) = overview(local.base).topics
        assert (seen.overdue_ms, seen.is_well, seen.is_bad) == (0, False, False)
        assert seen.held_by == ("sleepy", "slow")
        TestFailures().broken(local)
        clean(local.topic("t"))
        assert [t.failed for t in overview(local.base).topics] == [0, 1]


def test_units_are_packed_evenly() -> None:
    class Sized:
        def __init__(self, weight: int) -> None:
            self.weight = weight

    tasks = packed([Sized(w) for w in (5, 1, 4, 2, 3, 3)], 2)
    assert sorted(sorted(task) for task in tasks) == [[0, 1, 5], [2, 3, 4]]
    assert packed([Sized(1)], 8) == [[0]]
