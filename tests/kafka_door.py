"""What tests of the way to and from Kafka share: records, and how both sides show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.client import Kafka, Message
from lastword.clock import system_clock
from lastword.kafka.mirror import MirrorRound
from lastword.store import Store

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0, "segment.ms": 86_400_000}

Mirrored = Callable[..., MirrorRound]


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


def content(found: dict[int, list[Message]]) -> dict[int, list[tuple[Any, ...]]]:
    """What is published: all but offsets and times."""
    return {n: [(m.key, m.value, m.headers) for m in its] for n, its in found.items()}
