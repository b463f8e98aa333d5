"""Kafka's own test cases, named by their ids in docs/kafka-parity.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lastword.catalog import claims, cleaning, schema
from lastword.cleaner import choose
from lastword.cleaner.choose import Asked
from lastword.cleaner.metrics import gauges
from lastword.cleaner.overview import overview
from lastword.cleaner.plan import Clean, Nothing, in_order
from lastword.cleaner.run import Cleaner
from lastword.errors import InvalidConfigError, InvalidRecordError
from lastword.log.offset_map import OffsetMap, Shard
from lastword.passes import Pass
from lastword.store import Store
from lastword.testing import InProcess, ManualClock
from lastword.topic import Topic
from tests.notation import clean, cleaned, live_paths, shown, write
from tests.test_cleaner import Interfering, latest

DAY_MS = 86_400_000


@pytest.fixture
def topic(local: Store) -> Topic:
    return local.create_topic("t", config={"min.cleanable.dirty.ratio": 0})


def gauge(store: Store, name: str) -> float:
    return next(g.value for g in gauges(overview(store.base)) if g.name == name)


def first_dirty(topic: Topic) -> int:
    return topic.describe().partitions[0].first_dirty


def set_first_dirty(store: Store, offset: int) -> None:
    with store.base.catalog.write() as tx:
        tx.execute(schema.partition.update().values(first_dirty=offset))


def damage(store: Store, topic: Topic, change: Callable[[bytes], bytes]) -> None:
    path = Path(store.base.root.full(live_paths(topic)[0]))
    path.write_bytes(change(path.read_bytes()))


def abandoned(topic: Topic, runner: InProcess) -> bool:
    """The pass was made, and changed nothing."""
    (done,) = clean(topic, runner=runner)
    return (done.error or "").startswith("abandoned: ")


class TestLogCleaner:
    def test_C2_metrics_are_there_after_settings_change(self, local: Store, topic: Topic) -> None:
        before = {g.name for g in gauges(overview(local.base))}
        local.alter({"log.cleaner.dedupe.buffer.size": 1 << 22})
        assert {g.name for g in gauges(overview(local.base))} == before

    def test_C3_clean_segments(self, topic: Topic) -> None:
        keys = range(12)
        write(
            topic,
            " | ".join(f"{a}=0 {b}=0 {c}=0" for a, b, c in zip(*[iter(keys)] * 3, strict=True)),
        )
        write(topic, " ".join(f"{i}=1" for i in (1, 3, 5, 7, 9)) + " |  x=1*")
        (done,) = clean(topic, force=False)
        lives = [int(r.key or b"") for r in topic.read(0, 0, 12)]
        assert lives == [0, 2, 4, 6, 8, 10, 11]
        assert done.removed["obsolete"] == 5

    def test_C4_retention_deletes_old_segments_before_the_swap(
        self, local: Store, clock: ManualClock
    ) -> None:
        policy = {"cleanup.policy": "compact,delete", "retention.ms": 1000}
        topic = local.create_topic("t", config=policy)
        write(topic, "a=1 | a=2 | a=3")
        files = live_paths(topic)

        def expire() -> None:
            clock.advance(1001)
            topic.append([("b", "1")])
            local.expire()

        assert abandoned(topic, Interfering("sweep", expire))
        with local.base.catalog.read() as tx:
            retired = [row.path for row in tx.execute(schema.retired_file.select())]
        assert sorted(retired) == sorted(files)  # each exactly once
        assert shown(topic, offsets=True) == "3:b=1*"

    def test_C19_C20_large_messages(self, topic: Topic) -> None:
        big = "x" * (2 << 20)
        topic.append([("a", big), ("b", big), ("a", "small")])
        clean(topic)
        assert [(r.offset, len(r.value or "")) for r in topic.read(0)] == [(1, 2 << 20), (2, 5)]

    def test_C21_a_corrupt_header_is_reported_not_skipped(self, local: Store, topic: Topic) -> None:
        write(topic, "a=1 a=2")
        damage(local, topic, lambda data: data[:4] + bytes([0xFF] * 40) + data[44:])
        (failed,) = clean(topic)
        assert "is corrupt" in (failed.error or "")
        assert first_dirty(topic) == 0

    def test_C22_a_file_that_was_cut_off(self, local: Store, topic: Topic) -> None:
        write(topic, "a=1 a=2")
        damage(local, topic, lambda data: data[:100])
        (failed,) = clean(topic)
        assert "has 100 bytes, the catalog says" in (failed.error or "")

    def test_C30_log_to_clean(self, local: Store, topic: Topic) -> None:
        write(topic, "a=1 | b=1 | c=1 | d=1 | e=1 | f=1*")
        set_first_dirty(local, 5)
        (decision,) = local.plan("t")
        partition = topic.describe().partitions[0]
        active = partition.segments[-1].bytes
        at = decision.standing
        assert at.clean_bytes + at.cleanable_bytes == partition.bytes - active

    def test_C32_unkeyed_messages(self, local: Store) -> None:
        topic = local.create_topic("t", config={"cleanup.policy": "delete"})
        topic.append([(None, "x")] * 5)
        topic.roll()
        topic.append([(f"k{i}", "x") for i in range(5)])
        topic.alter({"cleanup.policy": "compact"})
        (done,) = clean(topic)
        assert done.removed == {"obsolete": 0, "tombstone": 0, "null key": 5}
        assert [r.key for r in topic.read(0)] == [b"k0", b"k1", b"k2", b"k3", b"k4"]

    def test_C33_an_abort_leaves_everything_as_it_was(self, local: Store, topic: Topic) -> None:
        write(topic, "a=1 a=2 | b=1")

        def abort() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            clean(topic, runner=Interfering("sweep", abort))
        assert shown(topic) == "a=1 a=2 | b=1"
        assert first_dirty(topic) == 0
        assert local.check(orphan_age_ms=0).is_clean

    def test_C34_A1_the_end_is_known_when_all_is_superseded(
        self, local: Store, clock: ManualClock
    ) -> None:
        topic = local.create_topic("t", config={"delete.retention.ms": 0})
        write(topic, "a=1 b=1 | a=∅ b=∅")
        clean(topic)
        clean(topic)
        assert (shown(topic), topic.offsets()) == ("", {0: (0, 4)})
        assert topic.append([("a", "2")]).ranges[0].base_offset == 4

    def test_C36_empty_files_are_merged_away(self, topic: Topic) -> None:
        write(topic, "k=1 | k=2 | k=3 | k=4*")
        clean(topic, force=False)
        assert (shown(topic), len(live_paths(topic))) == ("k=3 | k=4*", 2)

    def test_C39_the_map_holds_just_the_dirty_section(self, topic: Topic) -> None:
        write(topic, " ".join(f"{i}=0" for i in range(200)))
        (one,) = clean(topic)
        write(topic, " ".join(f"{i}=1" for i in range(150, 300)) + " 150=2")
        (two,) = clean(topic)
        assert [(p.start, p.end, p.keys) for p in (one, two)] == [(0, 200, 200), (200, 351, 150)]
        assert two.removed["obsolete"] == 51

    def test_C41_recovery_after_a_crash(
        self, local: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Our steps are fewer: files written, transaction, bytes deleted. Die after each."""
        topic = local.create_topic("t", config={"file.delete.delay.ms": 0})
        write(topic, " | ".join(f"{i}=0" for i in range(10)))
        write(topic, " ".join(f"{i}=1" for i in range(1, 10, 2)))
        before = latest(topic)

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        steps = ("lastword.cleaner.books.check_swept", "lastword.catalog.commits._swap")
        for step in steps:  # files are written; the transaction is under way
            with monkeypatch.context() as crash:
                crash.setattr(step, die)
                with pytest.raises(KeyboardInterrupt):
                    clean(topic)
            assert latest(topic) == before
            assert len(list(topic.read(0))) == 15
            assert local.check().is_clean
        assert len(list(clean(topic))) == 1  # done; the old bytes are still there
        assert latest(topic) == before
        assert len(list(topic.read(0))) == 10
        with monkeypatch.context() as crash:  # deleted, and not yet forgotten
            crash.setattr("lastword.catalog.retired.forget", die)
            with pytest.raises(KeyboardInterrupt):
                local.gc(orphan_age_ms=0)
        local.gc(orphan_age_ms=0)
        assert latest(topic) == before
        assert local.check(orphan_age_ms=0).is_clean

    def test_C48_without_a_cleaner_the_maxima_are_zero(self, local: Store) -> None:
        for name in (
            "max-buffer-utilization-percent",
            "max-clean-time-secs",
            "max-compaction-delay-secs",
        ):
            assert gauge(local, name) == 0

    def test_C49_the_throttle_follows_its_setting(self, local: Store, topic: Topic) -> None:
        rates: list[float] = []

        class Noting(InProcess):
            def run(self, step, work, units):  # type: ignore[no-untyped-def]
                rates.extend(unit.bytes_per_second for unit in units)
                return super().run(step, work, units)

        for rate in (10_000_000, 20_000_000):
            local.alter({"log.cleaner.io.max.bytes.per.second": rate})
            write(topic, "a=1 a=2")
            clean(topic, runner=Noting())
        assert sorted(set(rates)) == [10_000_000, 20_000_000]


class TestLogCleanerManager:
    def logs(self, store: Store, *sizes: int) -> list[Topic]:
        """Topics of so many one-record segments, all with first dirty 20."""
        found = []
        for i, size in enumerate(sizes):
            topic = store.create_topic(f"t{i}", config={"min.cleanable.dirty.ratio": 0.05})
            write(topic, " | ".join(f"k{n}=1" for n in range(size)))
            found.append(topic)
        set_first_dirty(store, 20)
        return found

    def chosen(self, store: Store) -> str:
        plans = in_order(d for d in store.plan() if isinstance(d, Clean))
        return plans[0].state.topic.name if plans else ""

    def test_M1_a_partition_that_cannot_be_read_is_named(self, local: Store, topic: Topic) -> None:
        write(topic, "a=1 a=2")
        damage(local, topic, lambda data: data[:-1])
        (failed,) = clean(topic)
        assert "(t-0, offsets 0 to 1)" in (failed.error or "")

    def test_M2_the_dirtiest_is_chosen(self, local: Store) -> None:
        self.logs(local, 20, 25, 30)
        assert self.chosen(local) == "t2"

    def test_M3_failed_ones_are_passed_over(self, local: Store) -> None:
        third = self.logs(local, 20, 25, 30)[2]
        failed = Pass("t2", 0, "", "", 0, 0, 0, 0, error="bad")
        cleaning.record_failure(local.base.catalog, third.id, failed, local.base.clock())
        rows = [t.row for t in (local.topic("t1"), third)]
        found = choose.decisions_for(local.base, rows, Asked(retry=False))
        assert [isinstance(d, Clean) for d in found] == [True, False]

    def test_M4_those_in_progress_are_passed_over(self, local: Store, clock: ManualClock) -> None:
        third = self.logs(local, 20, 25, 30)[2]
        (state,) = cleaning.states(local.base.catalog, [third.row], 0)
        assert claims.claim(local.base.catalog, state, "another", clock)
        assert self.chosen(local) == "t1"

    def test_M6_first_dirty_beyond_the_end_is_reset(self, local: Store, topic: Topic) -> None:
        write(topic, "a=1 a=2")
        set_first_dirty(local, 200)
        (done,) = clean(topic)
        assert (done.start, shown(topic, offsets=True)) == (0, "1:a=2")
        assert first_dirty(topic) == 2
        assert clean(topic) == []

    def test_M8_log_start_beyond_the_active_base(self, local: Store) -> None:
        topic = local.create_topic("t", config={"cleanup.policy": "compact,delete"})
        write(topic, "a=1 b=2 c=3*")
        topic.delete_records(0, 2)
        set_first_dirty(local, 0)
        (decision,) = local.plan("t")
        assert isinstance(decision, Nothing)

    def test_M10_M11_M12_whose_retention_is_the_cleaners(
        self, local: Store, clock: ManualClock
    ) -> None:
        for policy in ("delete", "compact,delete", "compact"):
            topic = local.create_topic(
                policy.replace(",", "-"), config={"cleanup.policy": policy, "retention.ms": 1}
            )
            write(topic, "a=1 | b=1")
        clock.advance(100)
        rows = [local.topic(name).row for name in local.topics()]
        with Cleaner(local.base, InProcess()) as cleaner:
            done = cleaner.round(rows, Asked())
        assert [e.topic for e in done.expired] == ["compact-delete"]

    def test_M13_the_policy_is_switched_under_way(self, local: Store, clock: ManualClock) -> None:
        config = {"cleanup.policy": "compact,delete", "retention.ms": 100_000_000}
        topic = local.create_topic("t", config=config)
        write(topic, "a=1 a=2")
        act = Interfering("sweep", lambda: topic.alter({"cleanup.policy": "delete"}))
        assert abandoned(topic, act)
        assert clean(topic) == []
        topic.alter({"cleanup.policy": "compact"})
        assert cleaned(topic) == "1:a=2"

    def test_M14_M15_first_dirty_is_kept_and_goes_with_the_topic(
        self, local: Store, topic: Topic
    ) -> None:
        write(topic, "a=1 a=2")
        clean(topic)
        assert first_dirty(local.topic("t")) == 2
        topic.delete()
        assert local.passes() == []
        assert first_dirty(local.create_topic("t")) == 0

    def test_M22_M23_what_is_cleanable_without_a_lag(self, local: Store, topic: Topic) -> None:
        write(topic, " | ".join(f"k{n}=1" for n in range(8)) + "*")
        (decision,) = local.plan("t")
        assert (decision.standing.first_dirty, decision.standing.first_uncleanable) == (0, 7)

    def test_M25_a_lag_that_is_over(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", config={"min.compaction.lag.ms": 3_600_000})
        write(topic, " | ".join(f"k{n}=1" for n in range(8)) + "*")
        assert local.plan("t")[0].standing.first_uncleanable == 0
        clock.advance(3_600_001)
        assert local.plan("t")[0].standing.first_uncleanable == 7

    def test_M28_M29_a_pass_that_lost_its_claim_commits_nothing(
        self, local: Store, topic: Topic
    ) -> None:
        write(topic, "a=1 a=2")
        lose = Interfering("sweep", lambda: release_all(local))
        assert abandoned(topic, lose)
        assert first_dirty(topic) == 0
        assert len(clean(topic)) == 1
        assert first_dirty(topic) == 2

    def test_M30_first_dirty_below_log_start(self, local: Store) -> None:
        topic = local.create_topic(
            "t", config={"cleanup.policy": "compact,delete", "retention.ms": -1}
        )
        write(topic, " | ".join(f"k{n}=1" for n in range(20)))
        topic.delete_records(0, 20)
        set_first_dirty(local, 15)
        (decision,) = local.plan("t")
        assert isinstance(decision, Nothing)
        assert decision.standing.first_dirty == 20


def release_all(store: Store) -> None:
    with store.base.catalog.write() as tx:
        tx.execute(schema.partition.update().values(claim=None))


class TestIntegration:
    def test_I1_failed_partitions_are_counted_others_go_on(self, local: Store) -> None:
        topic = local.create_topic("t", partitions=3)
        for p in range(3):
            write(topic, "a=1 a=2", partition=p)
            if p < 2:
                path = Path(local.base.root.full(live_paths(topic, p)[0]))
                path.write_bytes(b"garbage")
        clean(topic)
        assert gauge(local, "uncleanable-partitions-count") == 2
        sizes = [topic.describe().partitions[p].bytes for p in range(2)]
        assert gauge(local, "uncleanable-bytes") == sum(sizes)
        assert shown(topic, 2) == "a=2"
        topic.delete()
        assert gauge(local, "uncleanable-partitions-count") == 0

    @pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
    def test_Q1_the_last_write_of_each_key(self, local: Store, codec: str) -> None:
        topic = local.create_topic("t", config={"compression.type": codec})
        counter, expected = 0, {}
        for start in (0, 21):
            for _ in range(3):
                rows = []
                for key in range(start, start + 100):
                    counter += 1
                    expected[str(key).encode()] = (str(counter).encode(), counter - 1)
                    rows.append((str(key), str(counter)))
                topic.append(rows)
            before = topic.describe().bytes
            clean(topic)
            assert topic.describe().bytes < before
            assert first_dirty(topic) == topic.offsets()[0][1]
            assert {r.key: (r.value, r.offset) for r in topic.read(0)} == expected


class TestOffsetMap:
    @pytest.mark.parametrize("items", [10, 100, 1000, 5000])
    def test_O1_what_was_put_is_found(self, items: int) -> None:
        offset_map = OffsetMap(items * 112)
        keys = pa.array([str(i).encode() for i in range(items)], pa.binary())
        offset_map.put(keys, np.arange(items))
        assert offset_map.find(keys).tolist() == list(range(items))

    def test_O2_O6_utilisation(self) -> None:
        offset_map = OffsetMap(1000)
        assert (offset_map.fill, len(offset_map)) == (0.0, 0)
        fills = []
        for i in range(3):
            offset_map.put(pa.array([str(i).encode()], pa.binary()), np.array([i]))
            fills.append(offset_map.fill)
        assert fills == sorted(set(fills))
        assert offset_map.split(Shard()) == (Shard(), [])

    def test_O5_the_latest_offset_is_that_of_the_last_record(self, topic: Topic) -> None:
        write(topic, "a=1 b=1 a=2")
        (done,) = clean(topic)
        assert (done.end, done.keys) == (3, 2)


class TestMetrics:
    def test_A5_A6_maxima_over_the_last_round(
        self, local: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for seconds, delays, expected in (
            ((1, 2, 3), (1000, 2000, 3000), 3),
            ((4, 2, 3), (4000, 2000, 3000), 4),
            ((1.5, 1.5, 1.5), (1500, 1500, 1500), 1),
        ):
            rounds = [
                Pass("t", p, "", "me", 0, 0, 0, 0, seconds={"mark": s}, delay_ms=d)
                for p, (s, d) in enumerate(zip(seconds, delays, strict=True))
            ]
            monkeypatch.setattr(cleaning, "last_round", lambda _, found=rounds: found)
            assert gauge(local, "max-clean-time-secs") == expected
            assert gauge(local, "max-compaction-delay-secs") == expected


class TestNeighbours:
    def test_N1_compacted_topics_need_keys(self, topic: Topic) -> None:
        for rows, bad in (
            ([(None, "x"), ("a", "1")], (0,)),
            ([(None, "x")], (0,)),
            ([("a", "1"), (None, "x")], (1,)),
        ):
            with pytest.raises(InvalidRecordError) as error:
                topic.append(rows)
            assert error.value.indexes == bad
        topic.append([("a", "1")])
        assert topic.offsets() == {0: (0, 1)}

    def test_N2_no_retention_without_delete(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", config={"retention.ms": 10_000})
        write(topic, "a=1 | b=1 | c=1")
        clock.advance(15_000)
        assert clean(topic, force=False) != []
        assert shown(topic) == "a=1 b=1 c=1"

    def test_N4_what_lies_below_log_start_goes_even_without_delete(self, local: Store) -> None:
        topic = local.create_topic("t", config={"cleanup.policy": "compact,delete"})
        write(topic, "a=1 b=1 | c=1 d=1 | e=1 f=1")
        topic.delete_records(0, 2)
        topic.alter({"cleanup.policy": "compact"})
        bases = [s.base for s in topic.describe().partitions[0].segments]
        assert bases == [2, 4]

    def test_N9_retention_twice(self, local: Store, clock: ManualClock) -> None:
        config = {"cleanup.policy": "compact,delete", "retention.ms": 1}
        write(local.create_topic("t", config=config), "a=1 | b=1")
        clock.advance(2)
        assert [len(local.expire()) for _ in range(2)] == [1, 0]

    def test_N10_settings_that_cannot_be(self, local: Store) -> None:
        for config in (
            {"max.compaction.lag.ms": 100, "min.compaction.lag.ms": 200},
            {"min.cleanable.dirty.ratio": -0.1},
            {"min.cleanable.dirty.ratio": 1.2},
            {"min.cleanable.dirty.ratio": "text"},
            {"cleanup.policy": "true"},
            {"cleanup.policy": "foobar"},
        ):
            with pytest.raises(InvalidConfigError):
                local.create_topic("t", config=config)

    def test_N11_N12_several_files_are_swapped_as_one(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = local.create_topic("t", config={"segment.bytes": 1 << 20})
        noise = np.random.default_rng(1)
        for i in range(4):
            rows = [(key, noise.bytes(300_000)) for key in (f"{i}", f"{i}", f"{i}-too")]
            topic.append(rows)
            topic.roll()
        before = latest(topic)

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as crash:
            crash.setattr("lastword.catalog.commits.file_row", die)
            with pytest.raises(KeyboardInterrupt):
                clean(topic)
        assert len(list(topic.read(0))) == 12
        (done,) = clean(topic)
        assert done.files_written == 4
        assert latest(topic) == before
        assert local.check().is_clean

    def test_N13_a_horizon_does_not_touch_timestamps(
        self, local: Store, clock: ManualClock
    ) -> None:
        topic = local.create_topic("t", config={"delete.retention.ms": 1})
        topic.append([("a", "1", 5), ("b", None, 10), ("c", "1", 15)])
        (done,) = clean(topic)
        assert done.horizon_ms == clock() + 1
        assert [r.timestamp for r in topic.read(0)] == [5, 10, 15]

    def test_N15_null_keys_go_and_the_newest_timestamp_is_that_of_what_is_left(
        self, local: Store
    ) -> None:
        topic = local.create_topic("t", config={"cleanup.policy": "delete"})
        topic.append([(None, "x", 30), ("1", "x", 11), (None, "x", 12)])
        topic.append([(None, "x", 13), ("4", "x", 20), ("5", "x", 15), ("6", "x", 16)])
        topic.alter({"cleanup.policy": "compact"})
        (done,) = clean(topic)
        assert (done.records_in, done.records_out) == (7, 4)
        assert topic.describe().partitions[0].segments[0].max_ms == 20


def test_the_table_in_the_docs_tells_the_truth() -> None:
    """Each row that says 'reproduced' has its test, and each test its row."""
    page = (Path(__file__).parent.parent / "docs" / "kafka-parity.md").read_text()
    rows = re.findall(r"^\| ([A-Z]\d+) \| .* \| (.*) \|$", page, re.M)
    said = {case for case, verdict in rows if verdict.startswith("reproduced")}
    source = Path(__file__).read_text()
    tested = {
        c
        for name in re.findall(r"def test_((?:[A-Z]\d+_)+)", source)
        for c in re.findall(r"[A-Z]\d+", name)
    }
    assert said == tested
    assert len(rows) == len({case for case, _ in rows})
