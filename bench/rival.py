"""A topic of ours in a Kafka broker: the same records in the same partitions, compacted, consumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from broker import STOCK, Broker, BrokerError, broker
from broker.client import Kafka
from lastword.topic import Topic

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

_NAME = "rival"
_FILLER = b"filler"
DAY_MS = 86_400_000
_MESSAGES = 10_000  # at a time
# By default, a consumer whose queue is full (100,000 messages or 64 MB) fetches nothing for a second.
UNPAUSED = {"fetch.queue.backoff.ms": 10}


@contextmanager
def rival(topic: Topic, live: int) -> Iterator[Rival]:
    """The topic, which has so many live keys, in a broker of its own; ImportError without a client."""
    import confluent_kafka  # noqa: F401  # before a broker is started

    with broker(STOCK) as its:
        found = Rival(its, topic)
        found.fill()
        found.check(live)
        yield found


class Rival:
    """The topic in the broker. `records`: how many it still has when compacted."""

    def __init__(self, its: Broker, topic: Topic) -> None:
        self._its, self._topic, self.records = its, topic, 0
        self.start_seconds: list[float] = []  # that consumers took until their first message

    def consume(
        self, take: Callable[[list[Message]], object], settings: Mapping[str, int]
    ) -> float:
        """Consume it from the beginning; the seconds from the first message to the last."""
        consumer = self._consumer(settings)
        began = time.perf_counter()
        messages = consumer.consume(1, timeout=60)
        started = time.perf_counter()
        left = self.records
        while messages:
            take(messages)
            left -= len(messages)
            if not left:
                break
            messages = consumer.consume(min(_MESSAGES, left), timeout=60)
        seconds = time.perf_counter() - started
        consumer.close()
        if left:
            raise BrokerError(f"{left} messages did not come")
        self.start_seconds.append(started - began)
        return seconds

    def check(self, live: int) -> None:
        """That it has as many live keys as ours; counts its records."""
        consumer = self._consumer({})
        kept: dict[bytes, bytes | None] = {}
        fillers = 0
        while fillers < self._topic.partitions:
            for message in consumer.consume(_MESSAGES, timeout=1):
                self.records += 1
                fillers += message.key() == _FILLER
                kept[message.key()] = message.value()  # type: ignore[index]
        consumer.close()
        found = sum(value is not None for value in kept.values()) - 1  # the filler's
        if found != live:
            raise AssertionError(f"{found} live keys in Kafka, {live} here")

    def fill(self) -> None:
        """Produce the records, and wait until they are compacted.

        All but the active segment is. Segments roll by the records' time, so each partition gets
        one record more, which is much younger: it rolls them.
        """
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}
        Kafka(self._its).create(self._topic.partitions, config, _NAME)
        numbers, now_ms = range(self._topic.partitions), int(time.time() * 1000)
        produce(self._its, _NAME, pieces(self._topic), now_ms - 30 * DAY_MS)
        produce(self._its, _NAME, fillers(numbers), now_ms - 20 * DAY_MS)
        ends = {(_NAME, n): end for n, (_, end) in self._topic.offsets().items()}
        Kafka(self._its).wait_until_cleaned(ends)

    def _consumer(self, settings: Mapping[str, int]) -> Consumer:
        """A new consumer, set at the beginning."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        ours = {"bootstrap.servers": self._its.bootstrap, "group.id": "bench"}
        consumer = Consumer({**ours, "enable.auto.commit": False, **settings})
        numbers = range(self._topic.partitions)
        consumer.assign([TopicPartition(_NAME, number, OFFSET_BEGINNING) for number in numbers])
        return consumer


Piece = tuple[int, list[bytes], list[bytes | None]]  # a partition, keys, values


def pieces(topic: Topic) -> Iterator[Piece]:
    """The records of a topic."""
    for number in range(topic.partitions):
        for batch in topic.read(number, columns=["key", "value"]).batches():
            keys, values = (column.to_pylist() for column in batch.columns)
            yield number, keys, values


def fillers(numbers: Iterable[int]) -> Iterator[Piece]:
    """A record for each partition, of a key that no other has."""
    return ((number, [_FILLER], [b""]) for number in numbers)


def produce(
    its: Broker, name: str, records: Iterable[Piece], stamp_ms: int, codec: str = "none"
) -> None:
    """Send the records, which keep their order, and wait until they are there."""
    from confluent_kafka import Producer

    settings = {"linger.ms": 20, "max.in.flight": 1, "compression.type": codec}
    producer = Producer({"bootstrap.servers": its.bootstrap, **settings})
    for number, keys, values in records:
        for key, value in zip(keys, values, strict=True):
            while True:
                try:
                    producer.produce(name, value, key, number, timestamp=stamp_ms)
                    break
                except BufferError:  # its queue is full
                    producer.poll(0.1)
    producer.flush()
