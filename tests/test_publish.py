"""Topics of a store in a real broker."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lastword
from broker.client import Kafka
from lastword.errors import (
    MirrorError,
)
from lastword.jobs.spark import SparkRunner
from lastword.kafka.cluster import Cluster
from lastword.kafka.publish import Publisher, Publishing, PublishRound, View
from lastword.partitioner import partition_for
from lastword.store import Store
from lastword.testing import InProcess, ManualClock
from tests.commands import on_store
from tests.kafka_door import COMPACT, Mirrored, content, messages, shown

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

    def test_a_fill_that_was_cut_off(
        self, kafka: Kafka, local: Store, published: Published, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What was deleted between the crash and the restart is deleted in Kafka, too."""
        topic = local.create_topic("cut-off")
        topic.append([("a", "1"), ("b", "1")])
        self._crash(published, local, "cut-off", monkeypatch)
        topic.append([("a", None)])
        published(local, "cut-off", view=View.LATEST)
        state = {m.key: m.value for m in kafka.read("cut-off")[0]}
        assert state == {b"a": None, b"b": b"1"}

    def test_a_fill_that_was_cut_off_too_long_ago(
        self,
        kafka: Kafka,
        local: Store,
        clock: ManualClock,
        published: Published,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        local.alter({"offsets.retention.minutes": 1})
        topic = local.create_topic("long-ago", config={"delete.retention.ms": 0})
        topic.append([("a", "1"), ("b", "1")])
        self._crash(published, local, "long-ago", monkeypatch)
        topic.append([("a", None)])
        clock.advance(3_600_000)
        for _ in range(2):
            local.clean("long-ago", force=True, runner=InProcess())
        with pytest.raises(MirrorError, match="deleted keys may live on in Kafka"):
            published(local, "long-ago", view=View.LATEST)

    def test_log_start_that_came_after_the_position(
        self, kafka: Kafka, local: Store, published: Published
    ) -> None:
        topic = local.create_topic("expired", config={"cleanup.policy": "compact,delete"})
        topic.append([("a", "1"), ("b", "1")])
        published(local, "expired", view=View.LATEST)
        topic.append([("a", None), ("c", "1")])
        topic.delete_records(0, 2)  # just what was sent
        published(local, "expired", view=View.LATEST)
        assert {m.key: m.value for m in kafka.read("expired")[0]}[b"a"] is None
        topic.append([("d", "1"), ("e", "1")])
        topic.delete_records(0, 5)  # and more
        with pytest.raises(MirrorError, match="retention has dropped offsets 4 to 4"):
            published(local, "expired")

    def _crash(
        self, published: Published, store: Store, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Die after the first records were sent, before that is committed."""
        with monkeypatch.context() as patch:
            send = Publisher._send

            def dying(self: Publisher, frame: Any) -> None:
                send(self, frame)
                raise KeyboardInterrupt

            patch.setattr(Publisher, "_send", dying)
            with pytest.raises(KeyboardInterrupt):
                published(store, name, view=View.LATEST)

    def test_keys_in_several_partitions(
        self, kafka: Kafka, local: Store, published: Published
    ) -> None:
        topic = local.create_topic("scattered")
        topic.append([("a", "1"), ("b", "1")])
        topic.add_partitions(2)
        with pytest.raises(MirrorError, match="may be in several partitions"):
            published(local, "scattered", view=View.LATEST)
        with pytest.raises(MirrorError, match="may be in several partitions"):
            published(local, "scattered", to=kafka.create(1))
        published(local, "scattered")
        assert content(kafka.read("scattered")) == content(shown(local, "scattered"))

    def test_a_mirror_is_not_sent_back(
        self, kafka: Kafka, local: Store, mirrored: Mirrored, published: Published
    ) -> None:
        name = kafka.create()
        mirrored(local, name)
        with pytest.raises(MirrorError, match="is not sent back there"):
            published(local, name)

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
