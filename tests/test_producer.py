"""The producer: batches by size and linger, and what a failed flush leaves."""

from __future__ import annotations

import os
import threading

import pytest

from lastword import producer as producer_module
from lastword.catalog.commits import commit_append
from lastword.errors import (
    CatalogError,
    FlushError,
    InvalidArgumentError,
    InvalidRecordError,
    UnknownTopicError,
)
from lastword.log import append as log_append
from lastword.store import Store
from lastword.testing import ManualClock

NEVER = 10**6


def values(store: Store, topic: str = "t") -> list[object]:
    return [r.value for r in store.topic(topic).read()]


def test_nothing_is_appended_before_a_flush(local: Store, clock: ManualClock) -> None:
    local.create_topic("t")
    with local.producer(linger_ms=NEVER) as producer:
        producer.send("t", "a", "1", headers=[("h", b"x")])
        producer.send("t", "a", None, timestamp=5)
        assert values(local) == []
        assert producer.pending == 2
        producer.flush()
        assert producer.pending == 0
        assert [(r.value, r.timestamp, r.headers) for r in local.topic("t").read()] == [
            (b"1", clock(), (("h", b"x"),)),
            (None, 5, ()),
        ]


def test_a_full_batch_goes_by_itself(local: Store) -> None:
    local.create_topic("t")
    producer = local.producer(batch_bytes=1000, linger_ms=NEVER)
    producer.send("t", "a", "x" * 900)
    assert values(local) == []
    producer.send("t", "a", "")
    assert len(values(local)) == 2
    producer.send("t", "a", "", headers=[("h", b"x" * 1000)])
    assert len(values(local)) == 3


def test_keyless_records_go_round_robin_over_flushes(local: Store) -> None:
    topic = local.create_topic("t", partitions=3, config={"cleanup.policy": "delete"})
    producer = local.producer(linger_ms=NEVER)
    for _ in range(6):
        producer.send("t", None, "x")
        producer.flush()
    assert topic.offsets() == {0: (0, 2), 1: (0, 2), 2: (0, 2)}


def test_what_was_taken_is_not_refused_for_having_waited(local: Store, clock: ManualClock) -> None:
    local.create_topic("t", config={"message.timestamp.before.max.ms": 500})
    producer = local.producer(linger_ms=NEVER)
    producer.send("t", "a", "1")
    clock.advance(501)
    producer.flush()
    assert values(local) == [b"1"]


def test_a_close_that_cannot_forget_its_id_is_a_close(
    local: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.create_topic("t")
    producer = local.producer(linger_ms=NEVER)
    producer.send("t", "a", "1")
    monkeypatch.setattr(producer_module, "forget_sessions", _fail_before)
    producer.close()
    assert values(local) == [b"1"]


def test_a_topic_that_was_made_anew(local: Store) -> None:
    topic = local.create_topic("t")
    producer = local.producer(linger_ms=NEVER)
    producer.send("t", "a", "1")
    producer.flush()
    topic.delete()
    local.create_topic("t")
    producer.send("t", "a", "2")
    producer.flush()
    assert values(local) == [b"2"]


def test_a_forked_child_makes_its_own(local: Store) -> None:
    local.create_topic("t")
    producer = local.producer(linger_ms=NEVER)
    producer.send("t", "a", "1")
    child = os.fork()
    if child == 0:
        try:
            producer.send("t", "a", "2")
            os._exit(1)
        except InvalidArgumentError:
            os._exit(0)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer.close()
    assert values(local) == [b"1"]


def test_a_lingering_batch_goes_by_itself(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    local.create_topic("t")
    committed = threading.Event()

    def commit_and_tell(*args: object) -> object:
        result = commit_append(*args)  # type: ignore[arg-type]
        committed.set()
        return result

    monkeypatch.setattr(log_append, "commit_append", commit_and_tell)
    producer = local.producer(linger_ms=1)
    producer.send("t", "a", "1")
    assert committed.wait(timeout=150)
    assert values(local) == [b"1"]
    producer.close()


def test_leaving_the_block_flushes(local: Store) -> None:
    local.create_topic("one")
    local.create_topic("two")
    with local.producer(linger_ms=NEVER) as producer:
        producer.send("one", "a", "1")
        producer.send("two", "b", "2", partition=0)
        producer.send("one", "c", "3")
    assert (values(local, "one"), values(local, "two")) == ([b"1", b"3"], [b"2"])
    with pytest.raises(InvalidArgumentError, match="closed"):
        producer.send("one", "a", "1")
    producer.close()


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"key": None, "value": "x"}, "every record needs a key"),
        ({"key": "a", "value": "x", "partition": 1}, "partitions 0 to 0"),
        ({"key": "a", "value": "x", "timestamp": 10**15}, "takes timestamps from"),
        ({"key": 5, "value": "x"}, "its key is a int"),
        ({"key": "a", "value": "x", "partition": "0"}, "its partition is a str"),
        ({"key": "a", "value": "x", "headers": [(b"h", b"")]}, "a header's key is a bytes"),
        ({"key": "a", "value": "x", "headers": [("\ud800", b"")]}, "surrogates not allowed"),
    ],
)
def test_what_the_topic_refuses_is_refused_at_once(
    local: Store, record: dict[str, object], problem: str
) -> None:
    local.create_topic("t")
    with local.producer(linger_ms=NEVER) as producer:
        producer.send("t", "a", "1")
        with pytest.raises(InvalidRecordError, match=problem):
            producer.send("t", **record)  # type: ignore[arg-type]
        with pytest.raises(UnknownTopicError, match="no topic 'nope'"):
            producer.send("nope", "a", "1")
    assert values(local) == [b"1"]


class TestFailedFlush:
    def test_it_keeps_all_and_says_how_much(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        local.create_topic("t")
        producer = local.producer(linger_ms=NEVER)
        producer.send("t", "a", "1")
        producer.send("t", "a", "2")
        with monkeypatch.context() as broken:
            broken.setattr(log_append, "commit_append", _fail_before)
            for _ in range(2):
                with pytest.raises(FlushError, match=r"flush failed, 2 record\(s\) pending") as e:
                    producer.flush()
                assert e.value.pending == producer.pending == 2
        producer.send("t", "a", "3")
        assert len(producer.flush()) == 2  # the batch that failed, as it was, then the rest
        assert values(local) == [b"1", b"2", b"3"]

    def test_a_commit_of_unknown_fate_is_not_doubled(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        local.create_topic("t")
        producer = local.producer(linger_ms=NEVER)
        producer.send("t", "a", "1")

        with monkeypatch.context() as broken:
            broken.setattr(log_append, "commit_append", commit_and_lose_the_answer)
            with pytest.raises(FlushError, match="the connection went away"):
                producer.flush()
        producer.send("t", "a", "2")
        producer.close()
        assert values(local) == [b"1", b"2"]
        assert local.check(orphan_age_ms=0).is_clean

    def test_what_was_appended_after_all_is_not_handed_back(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        local.create_topic("t")
        producer = local.producer(linger_ms=NEVER)
        producer.send("t", "a", "1")
        with monkeypatch.context() as broken:
            broken.setattr(log_append, "commit_append", commit_and_lose_the_answer)
            with pytest.raises(FlushError):
                producer.flush()
        producer.send("t", "a", "2")
        assert [r.value for _, r in producer.take_pending()] == [b"2"]

    def test_the_lingering_thread_tries_again(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also after an error that is none of ours, and with nothing new sent."""
        local.create_topic("t")
        tries, committed = [], threading.Event()

        def fail_once(*args: object) -> object:
            tries.append(args)
            if len(tries) == 1:
                raise RuntimeError("out of the blue")
            result = commit_append(*args)  # type: ignore[arg-type]
            committed.set()
            return result

        monkeypatch.setattr(log_append, "commit_append", fail_once)
        monkeypatch.setattr(producer_module, "_RETRY_S", 0.001)
        producer = local.producer(linger_ms=1)
        producer.send("t", "a", "1")
        assert committed.wait(timeout=150)
        assert values(local) == [b"1"]
        producer.close()

    def test_pending_records_can_be_taken_back(self, local: Store) -> None:
        topic = local.create_topic("t")
        producer = local.producer(linger_ms=NEVER)
        producer.send("t", "a", "1")
        topic.delete()
        with pytest.raises(FlushError, match="no topic 't'"):
            producer.close()
        taken = producer.take_pending()
        assert [(name, r.key, r.value) for name, r in taken] == [("t", b"a", b"1")]
        producer.close()


def _fail_before(*_: object, **__: object) -> None:
    raise CatalogError("the store", "refused")


def commit_and_lose_the_answer(*args: object) -> None:
    commit_append(*args)  # type: ignore[arg-type]
    raise CatalogError("the store", "the connection went away")
