"""A real broker's topics in a store, and back."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lastword
from broker.client import Kafka, Message, days_ago
from broker.jars import connector_jars
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
from lastword.kafka.mirror import Mirror, MirrorRound, release
from lastword.kafka.publish import Publisher, Publishing, PublishRound, View
from lastword.opening import open_store
from lastword.partitioner import partition_for
from lastword.store import Store
from lastword.testing import InProcess, ManualClock
from tests.commands import on_store
from tests.soak import times

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0, "segment.ms": 86_400_000}


@pytest.fixture(scope="module")
def cluster(kafka: Kafka, spark: SparkSession) -> Iterator[Cluster]:
    with Cluster(spark, kafka.bootstrap) as opened:
        yield opened


Mirrored = Callable[..., MirrorRound]


@pytest.fixture
def mirrored(cluster: Cluster, spark: SparkSession) -> Mirrored:
    """A round of a mirror, for a store and a topic."""

    def call(store: Store, *names: str, **wanted: Any) -> MirrorRound:
        return Mirror(store.base, cluster, SparkRunner(spark), Wanted(names, **wanted)).round()

    return call


def messages(count: int, first: int = 0) -> list[Message]:
    """Records of nine keys, with headers, tombstones and times of their own."""
    now_ms = system_clock() - 1_000_000
    return [
        Message(
            b"k%d" % (i % 9),
            None if i % 7 == 3 else b"v%d" % i,
            now_ms + i,
            (("h", b"%d" % i), ("empty", None)) if i % 2 else (),
        )
        for i in range(first, first + count)
    ]


def shown(store: Store, name: str) -> dict[int, list[Message]]:
    """A topic here, as Kafka would show it."""
    topic = store.topic(name)
    return {
        number: [
            Message(r.key, r.value, r.timestamp, r.headers, r.offset)  # type: ignore[arg-type]
            for r in topic.read(number)
        ]
        for number in range(topic.partitions)
    }


def same(kafka: Kafka, store: Store, name: str, here: str = "") -> None:
    """Record by record, the copy is the topic, and the store is sound."""
    assert shown(store, here or name) == kafka.read(name)
    assert store.topic(here or name).offsets() == kafka.ends(name)
    assert store.check().problems == ()


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
        self, kafka: Kafka, local: Store, mirrored: Mirrored
    ) -> None:
        name = kafka.create(1, {"cleanup.policy": "compact"})
        kafka.transaction(name, [Message(b"a", b"1")], commit=True)
        kafka.transaction(name, [Message(b"a", b"never"), Message(b"b", b"never")], commit=False)
        done = mirrored(local, name)
        assert [m.value for m in shown(local, name)[0]] == [b"1"]
        assert done.lag == 0
        assert local.topic(name).offsets() == kafka.ends(name)


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
        with pytest.raises(MirrorError, match="nothing else is appended to it"):
            topic.append([("k", "v")])
        with pytest.raises(MirrorError):
            topic.table()["k"] = b"v"
        same(kafka, local, name)
        release(local.base, name)
        topic.append([("k", "v")])
        assert topic.offsets() == {0: (0, 11)}
        refused = mirrored(local, name)
        assert "is there already, and is no mirror" in refused.troubles[0].sentence
        with pytest.raises(MirrorError, match="is no mirror"):
            release(local.base, name)


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
        again = run(*words, "--available-now", "--json")
        assert again.json["partitions"][0]["records"] == 0
        missing = run(
            "mirror", "--bootstrap-servers", kafka.bootstrap, "--topic", "x", "--available-now"
        )
        assert missing.code == 1
        assert "not copied: x: no such topic" in missing.out
        assert run("mirror", "--release", "--topic", name).code == 0
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
        config.write_text("nonsense\n")
        words = ["--topic", "t", "--command-config", str(config)]
        assert "line 1 is not NAME=VALUE" in str(run("mirror", *servers, *words).error)
        words[-1] = str(tmp_path / "missing")
        assert "No such file" in str(run("mirror", *servers, *words).error)
        assert run("publish", "unknown", *servers).error is not None

    def test_spark_without_its_kafka_source(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Other:
            _jvm = type("Jvm", (), {"org": spark._jvm.nowhere})  # type: ignore[union-attr]

        with pytest.raises(SparkError, match="--packages or as spark.jars.packages"):
            Cluster(Other(), "127.0.0.1:1")  # type: ignore[arg-type]


Published = Callable[..., list[PublishRound]]


@pytest.fixture
def published(cluster: Cluster, spark: SparkSession) -> Published:
    """All rounds of a publication."""

    def call(store: Store, topic: str, **asked: Any) -> list[PublishRound]:
        publisher = Publisher(
            store.base, store.url, cluster, SparkRunner(spark), Publishing(topic, **asked)
        )
        rounds = [publisher.round()]
        while rounds[-1].lag:
            rounds.append(publisher.round())
        return rounds

    return call


def content(found: dict[int, list[Message]]) -> dict[int, list[tuple[Any, ...]]]:
    """What is published: all but offsets and times."""
    return {n: [(m.key, m.value, m.headers) for m in its] for n, its in found.items()}


def filled(store: Store, name: str, count: int = 100) -> None:
    topic = store.create_topic(name, 3, {"delete.retention.ms": 7, "segment.ms": 1_000_000})
    topic.append([(m.key, m.value, None, m.headers) for m in messages(count)])


class TestPublish:
    def test_the_log(self, kafka: Kafka, local: Store, published: Published) -> None:
        filled(local, "back")
        rounds = published(local, "back", most_offsets=40)
        assert len(rounds) >= 3
        assert content(kafka.read("back")) == content(shown(local, "back"))
        settings = kafka.settings("back")
        assert settings["cleanup.policy"] == "compact"
        assert settings["delete.retention.ms"] == "7"
        assert published(local, "back")[0].sent == {}
        local.topic("back").append([("new", "1")])
        published(local, "back")
        assert content(kafka.read("back")) == content(shown(local, "back"))

    def test_the_latest_view(self, kafka: Kafka, local: Store, published: Published) -> None:
        filled(local, "state")
        published(local, "state", view=View.LATEST)
        found = {m.key: m.value for its in kafka.read("state").values() for m in its}
        assert found == {r.key: r.value for r in local.topic("state").latest()}
        assert sum(map(len, kafka.read("state").values())) == len(found)
        local.topic("state").append([("k1", None), ("k2", "newer")])
        published(local, "state", view=View.LATEST)  # from here on, what has come since
        state = {m.key: m.value for its in kafka.read("state").values() for m in its}
        assert (state[b"k1"], state[b"k2"]) == (None, b"newer")

    def test_without_tombstones(self, kafka: Kafka, local: Store, published: Published) -> None:
        filled(local, "values")
        published(local, "values", tombstones=False)
        sent = [m for its in kafka.read("values").values() for m in its]
        assert len(sent) == sum(m.value is not None for m in messages(100))
        assert all(m.value is not None for m in sent)

    def test_into_a_topic_with_other_partitions(
        self, kafka: Kafka, local: Store, published: Published
    ) -> None:
        filled(local, "narrow")
        other = kafka.create(5, COMPACT)
        published(local, "narrow", to=other)
        found = kafka.read(other)
        assert sum(map(len, found.values())) == 100
        state: dict[Any, Any] = {}
        for its in found.values():
            state |= {m.key: m.value for m in its}
        assert {k: v for k, v in state.items() if v is not None} == {
            r.key: r.value for r in local.topic("narrow").latest()
        }

    def test_keys_land_where_javas_producer_puts_them(
        self, kafka: Kafka, local: Store, published: Published
    ) -> None:
        random_, partitions = random.Random(12), 17
        keys = list({random_.randbytes(random_.randrange(0, 40)) for _ in range(10_000)})
        local.create_topic("keys").append([(key, b"") for key in keys])
        other = kafka.create(partitions)
        published(local, "keys", to=other)
        found = {m.key: number for number, its in kafka.read(other).items() for m in its}
        ours = partition_for(pa.array(keys, pa.binary()), partitions)
        assert found == dict(zip(keys, ours, strict=True))

    def test_records_of_others_are_not_mixed_with(
        self, kafka: Kafka, local: Store, published: Published
    ) -> None:
        filled(local, "full")
        other = kafka.create(3)
        kafka.produce(other, messages(3))
        with pytest.raises(MirrorError, match="has records already"):
            published(local, "full", to=other)
        published(local, "full", to=other, is_append=True)
        assert sum(map(len, kafka.read(other).values())) == 103

    def test_a_crash_sends_no_more_than_a_round_again(
        self, kafka: Kafka, local: Store, published: Published, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        filled(local, "twice")
        commits = 0
        commit = Publisher._commit

        def dying(self: Publisher, offsets: dict[int, int]) -> None:
            nonlocal commits
            commits += 1
            if commits == 3:  # the beginning, a round, and then
                raise KeyboardInterrupt
            commit(self, offsets)

        monkeypatch.setattr(Publisher, "_commit", dying)
        with pytest.raises(KeyboardInterrupt):
            published(local, "twice", most_offsets=40)
        published(local, "twice", most_offsets=40)
        found = [m for its in kafka.read("twice").values() for m in its]
        assert 100 < len(found) <= 140
        for number, its in content(kafka.read("twice")).items():
            last = {key: value for key, value, _ in its}
            assert last == {m.key: m.value for m in shown(local, "twice")[number]}

    def test_what_was_lost_in_between(
        self, kafka: Kafka, local: Store, clock: ManualClock, published: Published
    ) -> None:
        local.alter({"offsets.retention.minutes": 1})
        topic = local.create_topic("lossy", 1, {"delete.retention.ms": 0})
        topic.append([("a", "1"), ("b", "1")])
        published(local, "lossy")
        topic.append([("a", None), ("c", "1")])
        clock.advance(3_600_000)  # the group no longer holds tombstones back
        for _ in range(2):
            local.clean("lossy", force=True, runner=InProcess())
        with pytest.raises(MirrorError, match="deleted keys may live on in Kafka"):
            published(local, "lossy")
        published(local, "lossy", allow_loss=True)
        assert [m.key for m in kafka.read("lossy")[0]] == [b"a", b"b", b"c"]

    def test_there_and_back(
        self, kafka: Kafka, local: Store, mirrored: Mirrored, published: Published
    ) -> None:
        name = kafka.create(3, COMPACT)
        kafka.produce(name, messages(50))
        mirrored(local, name)
        published(local, name, to="restored")
        assert content(kafka.read("restored")) == content(kafka.read(name))

    def test_the_command(self, kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
        url = str(tmp_path / "store")
        with lastword.open(url) as store:
            filled(store, "commanded")
        words = ["publish", "commanded", "--bootstrap-servers", kafka.bootstrap]
        done = on_store(url)(*words, "--view", "latest")
        assert done.code == 0
        assert "all is sent" in done.out
        assert on_store(url)(*words, "--json").json == {
            "sent": {},
            "lag": 0,
            "seconds": pytest.approx(0, abs=60),
        }


def test_errors_have_names(local: Store, mirrored: Mirrored) -> None:
    wrong: Sequence[dict[str, Any]] = ({}, {"pattern": "a", "prefix": ""})
    with pytest.raises(LastwordError, match="topics, or a pattern"):
        mirrored(local, **wrong[0])
    with pytest.raises(LastwordError, match="1 offset or more"):
        mirrored(local, "t", most_offsets=0)
