"""A real broker's topics in a store, and back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from broker.client import Kafka, Message, days_ago
from broker.jars import connector_jars
from lastword.catalog import queries
from lastword.catalog.commits import commit_mirror
from lastword.clock import system_clock
from lastword.errors import (
    ConflictError,
    KafkaError,
    LastwordError,
    MirrorError,
    MissedTombstonesError,
    SparkError,
)
from lastword.jobs.spark import SparkRunner
from lastword.kafka.cluster import Cluster
from lastword.kafka.counterparts import Wanted
from lastword.kafka.mirror import Mirror, MirrorRound
from lastword.opening import open_store
from lastword.spark.options import Options
from lastword.spark.rows import schema_for
from lastword.spark.stream import StreamReader
from lastword.store import Store
from lastword.testing import InProcess, ManualClock
from tests.commands import on_store
from tests.kafka_door import COMPACT, Mirrored, messages, same, shown
from tests.soak import times


class TestCopies:
    def test_offsets_partitions_timestamps_headers(
        self, kafka: Kafka, store: Store, mirrored: Mirrored
    ) -> None:
        name = kafka.create(3, COMPACT)
        kafka.produce(name, messages(200))
        first = mirrored(store, name)
        assert (first.records, first.lag, first.troubles) == (200, 0, ())
        same(kafka, store, name)
        assert mirrored(store, name).records == 0
        kafka.produce(name, messages(100, first=200))
        assert mirrored(store, name).records == 100
        same(kafka, store, name)
        expected: dict[bytes | None, bytes | None] = {}
        for message in messages(300):
            expected[message.key] = message.value
        alive = {key: value for key, value in expected.items() if value is not None}
        assert {r.key: r.value for r in store.topic(name).latest()} == alive

    def test_on_object_storage(self, kafka: Kafka, any_data: Store, mirrored: Mirrored) -> None:
        name = kafka.create(2, COMPACT)
        kafka.produce(name, messages(50))
        mirrored(any_data, name)
        same(kafka, any_data, name)
        any_data.clean(name, force=True, runner=InProcess())
        assert len(list(any_data.topic(name).latest())) > 0

    def test_what_kafka_compacted_away_stays_a_gap(
        self, kafka: Kafka, local: Store, mirrored: Mirrored
    ) -> None:
        name = kafka.create(1, COMPACT | {"delete.retention.ms": 0})
        now_ms = system_clock()
        old = [Message(b"k%d" % (i % 3), b"%d" % i, days_ago(30, now_ms)) for i in range(30)]
        kafka.produce(name, old)
        kafka.produce(name, [Message(b"filler", b"", days_ago(20, now_ms))])
        kafka.wait_until_cleaned({(name, 0): 30})
        done = mirrored(local, name)
        assert [m.offset for m in shown(local, name)[0]] == [27, 28, 29, 30]
        assert (done.records, done.lag) == (4, 0)
        same(kafka, local, name)
        assert [r.offset for r in local.topic(name).read(0, start=5)] == [27, 28, 29, 30]

    def test_our_cleaner_works_on_the_copy(
        self, kafka: Kafka, local: Store, mirrored: Mirrored
    ) -> None:
        name = kafka.create(2, {"cleanup.policy": "compact"})  # which Kafka does not clean so soon
        kafka.produce(name, messages(100))
        mirrored(local, name)
        local.clean(name, force=True, runner=InProcess())
        kept = shown(local, name)
        assert sum(map(len, kept.values())) == 9
        kafka.produce(name, messages(20, first=100))
        mirrored(local, name)
        theirs = kafka.read(name)
        for number, its in shown(local, name).items():
            new = [m for m in its if m not in kept[number]]
            assert its == kept[number] + new
            assert new == theirs[number][-len(new) :]
        assert local.check().problems == ()

    def test_a_round_takes_no_more_than_it_may(
        self, kafka: Kafka, local: Store, mirrored: Mirrored
    ) -> None:
        name = kafka.create(2)
        kafka.produce_to(name, [(i % 10 == 0, m) for i, m in enumerate(messages(200))])
        rounds = [mirrored(local, name, most_offsets=60) for _ in range(5)]
        assert [r.records for r in rounds] == [60, 60, 60, 20, 0]
        assert [r.lag for r in rounds] == [140, 80, 20, 0, 0]
        same(kafka, local, name)

    def test_much_of_one_partition_is_split_among_tasks(
        self, kafka: Kafka, local: Store, mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lastword.kafka.mirror._TASK_OFFSETS", 100)
        name = kafka.create(1)
        kafka.produce(name, messages(1_000))
        mirrored(local, name)
        assert local.topic(name).describe().partitions[0].segments[0].files == 2
        same(kafka, local, name)

    def test_log_start_is_taken_over(self, kafka: Kafka, local: Store, mirrored: Mirrored) -> None:
        name = kafka.create(1, {"cleanup.policy": "delete"})
        kafka.produce(name, [Message(None, b"no key"), *messages(20)])
        kafka.delete_records(name, 0, 15)
        mirrored(local, name)
        assert local.topic(name).offsets() == {0: (15, 21)}
        same(kafka, local, name)
        empty = kafka.create(1, {"cleanup.policy": "delete"})
        kafka.produce(empty, messages(20))
        kafka.delete_records(empty, 0, 20)
        mirrored(local, empty)
        assert local.topic(empty).offsets() == {0: (20, 20)}

    def test_keys_that_a_producer_put_elsewhere(
        self, kafka: Kafka, local: Store, mirrored: Mirrored
    ) -> None:
        name = kafka.create(2, COMPACT)
        kafka.produce(name, [Message(b"k", b"old", 1_600_000_000_000)], partition=0)
        kafka.produce(name, [Message(b"k", b"new", 1_600_000_000_001)], partition=1)
        mirrored(local, name)
        assert [r.value for r in local.topic(name).latest()] == [b"new"]

    def test_aborted_transactions_are_not_copied(
        self, kafka: Kafka, local: Store, clock: ManualClock, mirrored: Mirrored
    ) -> None:
        name = kafka.create(1, {"cleanup.policy": "compact"})
        kafka.transaction(name, [Message(b"a", b"1")], commit=True)
        kafka.transaction(name, [Message(b"a", b"never"), Message(b"b", b"never")], commit=False)
        done = mirrored(local, name)
        assert [m.value for m in shown(local, name)[0]] == [b"1"]
        assert done.lag == 0
        assert local.topic(name).offsets() == kafka.ends(name)
        local.topic(name).alter({"cleanup.policy": "delete", "retention.ms": 0})
        clock.advance(system_clock() - clock() + 1_000)
        local.expire()  # all that is left is the gap of a marker
        (row,) = queries.partitions(local.base.catalog, local.topic(name).row)
        assert (row.active_first_ms, row.active_base) == (None, row.log_end)

    def test_a_stream_finds_a_copy_whose_log_starts_later(
        self, kafka: Kafka, local: Store, mirrored: Mirrored
    ) -> None:
        name = kafka.create(1, {"cleanup.policy": "delete"})
        kafka.produce(name, messages(20))
        kafka.delete_records(name, 0, 15)
        mirrored(local, name)
        options = {"store": local.url, "subscribePattern": ".*"}
        stream = StreamReader(options, schema_for(Options(options)))
        assert len(stream.partitions({"other": {"0": 0}}, {name: {"0": 20}})) == 1


Rounds = Callable[..., Iterator[MirrorRound]]


class TestRounds:
    """All rounds of `--available-now`."""

    @pytest.fixture
    def rounds(self, cluster: Cluster, spark: SparkSession) -> Rounds:
        def call(store: Store, *names: str, **wanted: Any) -> Iterator[MirrorRound]:
            return Mirror(store.base, cluster, SparkRunner(spark), Wanted(names, **wanted)).rounds()

        return call

    def test_over_long_gaps(self, kafka: Kafka, local: Store, rounds: Rounds) -> None:
        name, now_ms = kafka.create(1, COMPACT), system_clock()
        kafka.produce(name, [Message(b"a", b"%d" % i, days_ago(30, now_ms)) for i in range(40)])
        kafka.produce(name, [Message(b"x", b"", days_ago(20, now_ms))])
        kafka.wait_until_cleaned({(name, 0): 40})
        found = list(rounds(local, name, most_offsets=10))
        assert [r.records for r in found] == [0, 0, 0, 1, 1]  # offsets 39 and 40 are left
        same(kafka, local, name)

    def test_what_comes_meanwhile_is_for_another_time(
        self, kafka: Kafka, local: Store, clock: ManualClock, rounds: Rounds
    ) -> None:
        name = kafka.create(2, {"cleanup.policy": "delete"})
        troubled = kafka.create(1, {"cleanup.policy": "delete"})
        for each in (name, troubled):
            kafka.produce(each, messages(20))
        list(rounds(local, troubled))
        kafka.produce(troubled, messages(20))
        kafka.delete_records(troubled, 0, 30)  # which lags from now on, for ever
        began_ms, count = clock(), 0
        for _ in rounds(local, name, troubled, most_offsets=15):
            kafka.produce(name, messages(20))
            clock.advance(100_000)
            count += 1
        assert count == 3
        assert sum(end for _, end in local.topic(name).offsets().values()) == 20
        rows = queries.partitions(local.base.catalog, local.topic(name).row)
        assert {row.mirrored_ms for row in rows} == {began_ms}  # since then it has not everything

    def test_it_goes_on_after_trouble(
        self,
        kafka: Kafka,
        local: Store,
        cluster: Cluster,
        spark: SparkSession,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        from lastword.cli import mirror as command

        name, stop = kafka.create(), threading.Event()
        kafka.produce(name, messages(10))
        mirror = Mirror(local.base, cluster, SparkRunner(spark), Wanted((name,)))
        real, calls = mirror.round, 0

        def round_() -> MirrorRound:
            nonlocal calls
            calls += 1
            if calls < 3:
                raise KafkaError("Kafka is away")
            stop.set()
            return real()

        monkeypatch.setattr(mirror, "round", round_)
        assert command._for_ever(mirror, stop, 0, as_json=False)
        told = capsys.readouterr().err
        assert told.count("to be tried again: Kafka is away") == 1  # not every second
        assert "10 record(s)" in told
        same(kafka, local, name)


class TestTopics:
    def test_settings_are_taken_over(self, kafka: Kafka, local: Store, mirrored: Mirrored) -> None:
        given = {
            "cleanup.policy": "compact,delete", "retention.ms": 123_456_789, "segment.ms": 100_000,
            "min.cleanable.dirty.ratio": 0.25, "compression.type": "zstd", "delete.retention.ms": 5,
            "max.message.bytes": 1_000_000,
        }  # fmt: skip
        name = kafka.create(2, given)
        plain = kafka.create(1)
        mirrored(local, name, plain)
        described = local.topic(name).describe().settings
        ours = {s.key: s.value for s in described if s.source == "topic"}
        del given["max.message.bytes"]  # which means nothing here
        assert ours == {key: str(value) for key, value in given.items()}
        assert local.topic(plain).config.policy == "delete"  # Kafka's default, not ours
        archive = mirrored(local, name, prefix="archive.", settings={"retention.ms": "-1"})
        assert archive.remarks == (
            f"made archive.{name}: 2 partition(s), cleanup.policy=compact,delete",
        )
        assert local.topic(f"archive.{name}").config.retention_ms == -1

    def test_a_pattern_finds_new_topics_and_partitions(
        self, kafka: Kafka, local: Store, mirrored: Mirrored
    ) -> None:
        one = kafka.create(1, name="pattern.one")
        kafka.produce(one, messages(10))
        pattern = r"pattern\..*"
        assert mirrored(local, pattern=pattern).records == 10
        two = kafka.create(2, name="pattern.two")
        kafka.create(1, name="other.pattern.two")
        kafka.produce(two, messages(10))
        kafka.grow(one, 3)
        kafka.produce(one, messages(10, first=10))
        done = mirrored(local, pattern=pattern)
        assert done.records == 20
        assert local.topics() == [one, two]
        same(kafka, local, one)
        same(kafka, local, two)
        kafka.delete(two)
        gone = mirrored(local, pattern=pattern)
        assert [(t.where, t.sentence[:13]) for t in gone.troubles] == [(two, "no such topic")]

    def test_nothing_else_is_appended(self, kafka: Kafka, local: Store, mirrored: Mirrored) -> None:
        name = kafka.create(1, COMPACT)
        kafka.produce(name, messages(10))
        mirrored(local, name)
        topic = local.topic(name)
        with pytest.raises(MirrorError, match="records are appended there, and not here"):
            topic.append([("k", "v")])
        with pytest.raises(MirrorError, match="partitions are added there"):
            topic.add_partitions(5)
        with pytest.raises(MirrorError):
            topic.table()["k"] = b"v"
        same(kafka, local, name)
        topic.release()
        topic.append([("k", "v")])
        assert topic.offsets() == {0: (0, 11)}
        refused = mirrored(local, name)
        assert "is there already, and is no mirror" in refused.troubles[0].sentence
        with pytest.raises(MirrorError, match="is no mirror"):
            topic.release()


class TestDetected:
    def test_a_topic_that_was_made_anew(
        self, kafka: Kafka, local: Store, mirrored: Mirrored
    ) -> None:
        other, name = kafka.create(), kafka.create(1, name="recreated")
        kafka.produce(name, messages(10))
        mirrored(local, name)
        before = shown(local, name)
        kafka.delete(name)
        kafka.create(1, name=name)
        kafka.produce(name, messages(20))
        kafka.produce(other, messages(5))
        done = mirrored(local, name, other, allow_loss=True)
        assert [t.where for t in done.troubles] == [name]
        assert "deleted in Kafka and made anew" in done.troubles[0].sentence
        assert shown(local, name) == before
        same(kafka, local, other)  # the others are copied

    def test_records_that_were_deleted_before_they_were_copied(
        self, kafka: Kafka, local: Store, mirrored: Mirrored
    ) -> None:
        name = kafka.create(1, {"cleanup.policy": "delete"})
        kafka.produce(name, messages(10))
        mirrored(local, name)
        kafka.produce(name, messages(10, first=10))
        kafka.delete_records(name, 0, 10)
        assert mirrored(local, name).troubles == ()  # all that is gone was copied
        kafka.produce(name, messages(10, first=20))
        kafka.delete_records(name, 0, 25)
        done = mirrored(local, name)
        assert "starts at 25, the copy ends at 20" in done.troubles[0].sentence
        assert local.topic(name).offsets() == {0: (0, 20)}
        assert mirrored(local, name, allow_loss=True).records == 5
        assert [m.offset for m in shown(local, name)[0]] == [*range(20), *range(25, 30)]

    def test_tombstones_that_may_have_gone(
        self, kafka: Kafka, local: Store, clock: ManualClock, mirrored: Mirrored
    ) -> None:
        name = kafka.create(1, COMPACT | {"delete.retention.ms": 1})
        now_ms = system_clock()
        kafka.produce(name, [Message(b"a", b"1", days_ago(30, now_ms))])
        mirrored(local, name)
        clock.advance(60_000)
        kafka.produce(name, [Message(b"b", b"1", days_ago(30, now_ms))])
        assert mirrored(local, name).troubles == ()  # late, but nothing is missing
        clock.advance(60_000)
        kafka.produce(name, [Message(b"a", None, days_ago(30, now_ms))])
        kafka.produce(name, [Message(b"x", b"", days_ago(20, now_ms))])
        kafka.wait_until_cleaned({(name, 0): 3})
        kafka.produce(name, [Message(b"y", b"", days_ago(10, now_ms))])
        kafka.wait_until_cleaned({(name, 0): 4})
        assert [m.key for m in kafka.read(name)[0]] == [b"b", b"x", b"y"]  # and "a" is deleted
        done = mirrored(local, name)
        assert "deleted keys would live on here" in done.troubles[0].sentence
        assert local.topic(name).offsets() == {0: (0, 2)}
        assert local.check(orphan_age_ms=0).problems == ()  # and nothing is left behind
        assert mirrored(local, name, allow_loss=True).records == 2
        with pytest.raises(MissedTombstonesError):
            local.topic(name).changes({0: 2})

    def test_a_round_may_take_too_long(
        self,
        kafka: Kafka,
        local: Store,
        clock: ManualClock,
        mirrored: Mirrored,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A tombstone that goes between the look and the read of a first copy."""
        name = _with_a_gap(kafka)
        self._before_staging(monkeypatch, lambda: clock.advance(1_001))
        done = mirrored(local, name)
        assert "deleted keys would live on here" in done.troubles[0].sentence
        assert local.topic(name).offsets() == {0: (0, 0)}

    def test_a_late_partition_is_not_read_again_and_again(
        self,
        kafka: Kafka,
        local: Store,
        clock: ManualClock,
        cluster: Cluster,
        spark: SparkSession,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        name = _with_a_gap(kafka)
        mirror = Mirror(local.base, cluster, SparkRunner(spark), Wanted((name,)))
        with monkeypatch.context() as patch:
            self._before_staging(patch, lambda: clock.advance(1_001))
            (trouble,) = mirror.round().troubles
        clock.advance(5_000)
        self._before_staging(monkeypatch, lambda: pytest.fail("it is read again"), only_if_any=True)
        assert mirror.round().troubles == (trouble,)

    def test_a_topic_that_is_made_anew_while_it_is_read(
        self, kafka: Kafka, local: Store, mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name = kafka.create(1, name="replaced")
        kafka.produce(name, messages(5))
        mirrored(local, name)
        before = shown(local, name)
        kafka.produce(name, messages(1))

        def replace_it() -> None:
            kafka.delete(name)
            kafka.create(1, name=name)
            kafka.produce(name, messages(9))

        self._before_staging(monkeypatch, replace_it)
        (trouble,) = mirrored(local, name).troubles
        assert "was replaced while it was read" in trouble.sentence
        assert shown(local, name) == before

    def test_records_that_are_deleted_while_they_are_read(
        self, kafka: Kafka, local: Store, mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name = kafka.create(1, {"cleanup.policy": "delete"})
        kafka.produce(name, messages(20))
        with monkeypatch.context() as patch:
            self._before_staging(patch, lambda: kafka.delete_records(name, 0, 10))
            with pytest.raises(SparkError, match="[Oo]ffset"):
                mirrored(local, name)
        mirrored(local, name)  # the next round sees where the log starts now
        same(kafka, local, name)

    def _before_staging(
        self, patch: pytest.MonkeyPatch, act: Callable[[], object], *, only_if_any: bool = False
    ) -> None:
        """Do something between the look and the read."""
        staged = Mirror._staged

        def late(self: Mirror, standings: Any, copies: Any) -> Any:
            if copies or not only_if_any:
                act()
            return staged(self, standings, copies)

        patch.setattr(Mirror, "_staged", late)

    def test_a_mirror_that_has_nothing_to_do_is_not_late(
        self, kafka: Kafka, local: Store, clock: ManualClock, mirrored: Mirrored
    ) -> None:
        hour_ms = 3_600_000
        name = kafka.create(1, COMPACT | {"delete.retention.ms": 2 * hour_ms})
        now_ms = system_clock()
        kafka.produce(name, [Message(b"z", b"", days_ago(30, now_ms))])
        mirrored(local, name)
        clock.advance(int(1.5 * hour_ms))
        mirrored(local, name)  # it looks, and has everything
        clock.advance(int(1.5 * hour_ms))
        old = [Message(b"a", b"%d" % i, days_ago(30, now_ms)) for i in range(3)]
        kafka.produce(name, old)
        kafka.produce(name, [Message(b"x", b"", days_ago(20, now_ms))])
        kafka.wait_until_cleaned({(name, 0): 4})
        assert mirrored(local, name).troubles == ()
        same(kafka, local, name)

    def test_one_that_cannot_be_asked_about(
        self, kafka: Kafka, local: Store, mirrored: Mirrored
    ) -> None:
        name = kafka.create()
        kafka.produce(name, messages(5))
        done = mirrored(local, "no topic's name!", name)
        assert [t.where for t in done.troubles] == ["no topic's name!"]
        same(kafka, local, name)

    def test_a_topic_that_is_not_there(self, local: Store, mirrored: Mirrored) -> None:
        (trouble,) = mirrored(local, "nowhere").troubles
        assert trouble.where == "nowhere"
        assert local.topics() == []


class TestExactlyOnce:
    def test_a_crash_between_the_steps(
        self,
        kafka: Kafka,
        local: Store,
        clock: ManualClock,
        mirrored: Mirrored,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        name = kafka.create(2)
        kafka.produce(name, messages(40))
        with monkeypatch.context() as dying:  # after step 1
            dying.setattr("lastword.kafka.mirror.Mirror._staged", _die)
            with pytest.raises(KeyboardInterrupt):
                mirrored(local, name)
        with monkeypatch.context() as dying:  # after step 2
            dying.setattr("lastword.kafka.mirror.commit_mirror", _die)
            with pytest.raises(KeyboardInterrupt):
                mirrored(local, name)
        assert local.topic(name).offsets() == {0: (0, 0), 1: (0, 0)}
        with monkeypatch.context() as dying:  # after step 3
            dying.setattr("lastword.kafka.mirror.Mirror._note", _die)
            with pytest.raises(KeyboardInterrupt):
                mirrored(local, name)
        same(kafka, local, name)
        assert mirrored(local, name).records == 0
        clock.advance(system_clock() - clock())
        assert len(local.gc(orphan_age_ms=0)) == 2  # what the second had staged
        same(kafka, local, name)

    def test_two_mirrors_of_one_topic(
        self, kafka: Kafka, store: Store, mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name = kafka.create(2)
        kafka.produce(name, messages(40))
        where = "lastword.kafka.mirror.commit_mirror"

        def late(*args: Any) -> None:
            monkeypatch.setattr(where, commit_mirror)
            mirrored(store, name)  # the other one is quicker
            commit_mirror(*args)

        monkeypatch.setattr(where, late)
        with pytest.raises(ConflictError, match="by another mirror"):
            mirrored(store, name)
        same(kafka, store, name)
        assert store.check(orphan_age_ms=0).problems == ()

    def test_killed_while_it_copies(self, kafka: Kafka, tmp_path: Path) -> None:
        name, url = kafka.create(2), str(tmp_path / "store")
        kafka.produce(name, messages(3_000))
        with open_store(url):
            pass
        stop = threading.Event()
        writer = threading.Thread(target=_write_on, args=(kafka, name, stop))
        writer.start()
        try:
            seen = 0
            for _ in range(times(1)):
                command = _mirror_command(kafka, name, url, "--max-offsets-per-round", "100")
                process = subprocess.Popen(
                    command, start_new_session=True, stderr=subprocess.DEVNULL
                )
                seen = _wait_for_more(url, name, than=seen + 500)
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        finally:
            stop.set()
            writer.join()
        told = subprocess.run(
            [*_mirror_command(kafka, name, url), "--available-now", "--json"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert json.loads(told.stdout.splitlines()[-1])["troubles"] == []
        with open_store(url) as store:
            same(kafka, store, name)


def _with_a_gap(kafka: Kafka) -> str:
    """A topic whose first records Kafka has compacted away; tombstones stay for a second."""
    name, now_ms = kafka.create(1, COMPACT | {"delete.retention.ms": 1_000}), system_clock()
    kafka.produce(name, [Message(b"a", b"%d" % i, days_ago(30, now_ms)) for i in range(3)])
    kafka.produce(name, [Message(b"x", b"", days_ago(20, now_ms))])
    kafka.wait_until_cleaned({(name, 0): 3})
    return name


def _die(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def _write_on(kafka: Kafka, name: str, stop: threading.Event) -> None:
    first = 3_000
    while not stop.wait(0.05):
        kafka.produce(name, messages(20, first))
        first += 20


def _wait_for_more(url: str, name: str, than: int) -> int:
    deadline = time.monotonic() + 180
    with open_store(url) as store:
        while True:
            assert time.monotonic() < deadline, "nothing was copied"
            if name in store.topics():
                offsets = store.topic(name).offsets().values()
                if (copied := sum(end for _, end in offsets)) > than:
                    return copied
            time.sleep(0.02)


def _mirror_command(kafka: Kafka, name: str, url: str, *more: str) -> list[str]:
    words = [sys.executable, "-m", "lastword", "mirror", "--bootstrap-servers", kafka.bootstrap]
    words += ["--topic", name, "--store", url, "--jars", connector_jars()]
    return [*words, "--master", "local[1]", "--interval", "50ms", *more]


class TestCommand:
    def test_once(self, kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
        run = on_store(str(tmp_path / "store"))
        name = kafka.create(2, COMPACT)
        kafka.produce(name, messages(30))
        words = ["mirror", "--bootstrap-servers", kafka.bootstrap, "--topic", name]
        done = run(*words, "--available-now")
        assert done.code == 0, done
        assert f"made {name}: 2 partition(s), cleanup.policy=compact" in done.out
        assert "30 record(s)" in done.out
        assert "lag 0" in done.out
        assert f"mirrors {name} of Kafka cluster" in run("topics", "describe", name).out
        again = run(*words, "--available-now", "--json")
        assert again.json["partitions"][0]["records"] == 0
        assert (again.json["records"], again.json["lag"]) == (0, 0)
        missing = run(
            "mirror", "--bootstrap-servers", kafka.bootstrap, "--topic", "x", "--available-now"
        )
        assert missing.code == 1
        assert "not copied: x: no such topic" in missing.out
        assert run("topics", "release", name).code == 0
        assert run("produce", name, stdin="k\tv\n").code == 0

    def test_bad_input(self, kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
        run = on_store(str(tmp_path / "store"))
        servers = ["--bootstrap-servers", kafka.bootstrap]
        assert run("mirror", "--topic", "t").code == 2
        assert "topics, or a pattern" in str(run("mirror", *servers).error)
        wrong = run("mirror", *servers, "--pattern", "(")
        assert "is no regular expression" in str(wrong.error)
        config = tmp_path / "client.properties"
        config.write_text("# quick\nrequest.timeout.ms=500\ndefault.api.timeout.ms=1000\n")
        nobody = run(
            "mirror", "--bootstrap-servers", "127.0.0.1:1", "--topic", "t", "--available-now",
            "--command-config", str(config),
        )  # fmt: skip
        assert isinstance(nobody.error, KafkaError)
        assert "Kafka at 127.0.0.1:1: no answer" in str(nobody.error)
        words = ["--topic", "t", "--command-config", str(tmp_path / "missing")]
        assert "No such file" in str(run("mirror", *servers, *words).error)
        assert run("publish", "unknown", *servers).error is not None

    def test_client_settings_are_java_properties(self, kafka: Kafka, spark: SparkSession) -> None:
        text = "# a comment\nbootstrap.servers=nowhere:1\nclient.id = a \\\n  b\nmetadata.max.age.ms: 5000\n"
        with Cluster(spark, kafka.bootstrap, text) as cluster:
            assert cluster.source_options["kafka.bootstrap.servers"] == kafka.bootstrap
            assert cluster.source_options["kafka.client.id"] == "a b"
            assert cluster.source_options["kafka.metadata.max.age.ms"] == "5000"
            assert cluster.id()

    def test_spark_without_its_kafka_source(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Other:
            _jvm = type("Jvm", (), {"org": spark._jvm.nowhere})  # type: ignore[union-attr]

        with pytest.raises(SparkError, match="--packages or as spark.jars.packages"):
            Cluster(Other(), "127.0.0.1:1")  # type: ignore[arg-type]


def test_what_cannot_be_meant(local: Store, mirrored: Mirrored) -> None:
    with pytest.raises(LastwordError, match="topics, or a pattern"):
        mirrored(local)
    with pytest.raises(LastwordError, match="topics, or a pattern"):
        mirrored(local, "t", pattern="t")
    with pytest.raises(LastwordError, match="1 offset or more"):
        mirrored(local, "t", most_offsets=0)
    with pytest.raises(LastwordError, match="did you mean 'retention.ms'"):
        mirrored(local, "t", settings={"retention.mss": "1"})
