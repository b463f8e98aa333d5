"""A topic of ours in a Kafka broker: the same records in the same partitions, compacted, consumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from broker import STOCK, Broker, BrokerError, broker

from lastword.topic import Topic

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

_NAME = "rival"
_FILLER = b"filler"
_DAY_MS = 86_400_000
_CLEAN_SECONDS = 300
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
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self._its.bootstrap})
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        new = NewTopic(_NAME, self._topic.partitions, 1, config=config)
        admin.create_topics([new])[_NAME].result()
        settings = {"linger.ms": 20, "max.in.flight": 1}  # one, so that they keep their order
        producer = Producer({"bootstrap.servers": self._its.bootstrap, **settings})
        now_ms = int(time.time() * 1000)

        def produce(partition: int, key: bytes, value: bytes | None, stamp_ms: int) -> None:
            while True:
                try:
                    return producer.produce(_NAME, value, key, partition, timestamp=stamp_ms)
                except BufferError:  # its queue is full
                    producer.poll(0.1)

        for partition in range(self._topic.partitions):
            for batch in self._topic.read(partition, columns=["key", "value"]).batches():
                for key, value in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                    produce(partition, key, value, now_ms - 30 * _DAY_MS)
        producer.flush()
        for partition in range(self._topic.partitions):
            produce(partition, _FILLER, b"", now_ms - 20 * _DAY_MS)
        producer.flush()
        self._wait_until_clean()

    def _wait_until_clean(self) -> None:
        """Until the broker has compacted all that is ours."""
        ends = {(_NAME, str(n)): str(end) for n, (_, end) in self._topic.offsets().items()}
        checkpoint = self._its.data / "cleaner-offset-checkpoint"
        deadline = time.monotonic() + _CLEAN_SECONDS
        while True:
            lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
            rows = [line.split() for line in lines if line.startswith(f"{_NAME} ")]
            if {(name, partition): end for name, partition, end in rows} == ends:
                return
            if time.monotonic() > deadline:
                raise BrokerError(f"Kafka's cleaner was not done after {_CLEAN_SECONDS} s")
            time.sleep(0.05)

    def _consumer(self, settings: Mapping[str, int]) -> Consumer:
        """A new consumer, set at the beginning."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        ours = {"bootstrap.servers": self._its.bootstrap, "group.id": "bench"}
        consumer = Consumer({**ours, "enable.auto.commit": False, **settings})
        numbers = range(self._topic.partitions)
        consumer.assign([TopicPartition(_NAME, number, OFFSET_BEGINNING) for number in numbers])
        return consumer
