"""A broker with its clients: topics, records in, records out, what its cleaner has done."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from broker import Broker
from lastword.model import Header

_DAY_MS = 86_400_000
_WAIT_SECONDS = 120
_QUIET: dict[str, str | int | float | bool] = {"log_level": 0}


@dataclass(frozen=True)
class Message:
    """A record for Kafka, or from it."""

    key: bytes | None
    value: bytes | None
    timestamp: int = 0  # now
    headers: tuple[Header, ...] = ()
    offset: int = -1


class Kafka:
    """A broker with its clients."""

    def __init__(self, its: Broker) -> None:
        self.its, self.bootstrap = its, its.bootstrap
        self._address = {"bootstrap.servers": its.bootstrap, **_QUIET}
        self._admin = AdminClient(self._address)
        self._producers: dict[str, Producer] = {}
        self._numbers = itertools.count()

    def create(
        self, partitions: int = 1, config: Mapping[str, object] | None = None, name: str = ""
    ) -> str:
        """A new topic; its name."""
        name = name or f"topic-{next(self._numbers)}"
        self.create_all([(name, partitions, config or {})])
        return name

    def create_all(self, topics: Iterable[tuple[str, int, Mapping[str, object]]]) -> None:
        """Many topics at once, until the broker knows of them."""
        new = [
            NewTopic(name, partitions, 1, config={k: str(v) for k, v in config.items()})
            for name, partitions, config in topics
        ]
        futures = self._admin.create_topics(new)
        for future in futures.values():
            future.result()
        _until(lambda: futures.keys() <= self._known(), f"{futures.keys()} known")

    def delete(self, name: str) -> None:
        for future in self._admin.delete_topics([name]).values():
            future.result()
        _until(lambda: name not in self._known(), f"{name} deleted")

    def grow(self, name: str, partitions: int) -> None:
        for future in self._admin.create_partitions([NewPartitions(name, partitions)]).values():
            future.result()
        _until(lambda: self.partitions(name) == partitions, f"{name} grown")

    def delete_records(self, name: str, partition: int, before: int) -> None:
        place = TopicPartition(name, partition, before)
        for future in self._admin.delete_records([place]).values():
            future.result()

    def settings(self, name: str) -> dict[str, str]:
        """The settings of a topic that are not defaults."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        (future,) = self._admin.describe_configs([resource]).values()
        return {e.name: e.value for e in future.result().values() if not e.is_default}

    def alter(self, name: str, changes: Mapping[str, object]) -> None:
        now = self.settings(name)
        entries = [
            ConfigEntry(k, str(v), incremental_operation=AlterConfigOpType.SET)
            for k, v in changes.items()
            if now.get(k) != str(v)
        ]
        if not entries:
            return
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        told = f"Updating topic {name} with new configuration"
        before = self.its.log.read_text().count(told)
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result()
        _until(lambda: self.its.log.read_text().count(told) > before, f"{name} altered")

    def _known(self) -> set[str]:
        return set(self._admin.list_topics().topics)

    def partitions(self, name: str) -> int:
        return len(self._admin.list_topics(name).topics[name].partitions)

    def produce(
        self, name: str, messages: Iterable[Message], partition: int = -1, **settings: object
    ) -> list[tuple[int, int, str | None]]:
        """Send these in order; the partition, the offset, and the error of each."""
        return self.produce_to(name, [(partition, m) for m in messages], **settings)

    def produce_to(
        self, name: str, messages: Iterable[tuple[int, Message]], **settings: object
    ) -> list[tuple[int, int, str | None]]:
        """Send these, each to its partition (-1: by its key)."""
        producer = self._producers.setdefault(
            str(settings), Producer({**self._address, "linger.ms": 5, **settings})
        )
        sent: list[tuple[int, int, str | None]] = []

        def told(error: KafkaError | None, message: object) -> None:
            code = None if error is None else error.name()
            sent.append((message.partition(), message.offset(), code))  # type: ignore[attr-defined]

        for partition, m in messages:
            producer.produce(
                name,
                m.value,
                m.key,
                partition,
                on_delivery=told,
                timestamp=m.timestamp,
                headers=list(m.headers),
            )
            producer.poll(0)
        assert producer.flush(_WAIT_SECONDS) == 0
        return sent

    def transaction(self, name: str, messages: Iterable[Message], *, commit: bool) -> None:
        """Send these in a transaction, which is committed or aborted."""
        producer = Producer({**self._address, "transactional.id": f"tx-{next(self._numbers)}"})
        producer.init_transactions()
        producer.begin_transaction()
        for m in messages:
            producer.produce(name, m.value, m.key, 0)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()
        _until(lambda: self._is_settled(name), f"the transaction's end in {name}")

    def _is_settled(self, name: str) -> bool:
        """Whether no transaction is open in the first partition, as far as readers are told."""
        asked = {TopicPartition(name, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        ends = {
            future.result().offset
            for isolation in IsolationLevel
            for future in self._admin.list_offsets(asked, isolation_level=isolation).values()
        }
        return len(ends) == 1

    def read(self, name: str, partitions: Sequence[int] | None = None) -> dict[int, list[Message]]:
        """All that partitions have, from their beginning."""
        numbers = range(self.partitions(name)) if partitions is None else partitions
        settings = {"group.id": "reader", "enable.partition.eof": True, "enable.auto.commit": False}
        settings["fetch.wait.max.ms"] = 20  # the end is told when a fetch brings nothing
        consumer = Consumer({**self._address, **settings, "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition(name, n, 0) for n in numbers])
        found: dict[int, list[Message]] = {n: [] for n in numbers}
        left = set(numbers)
        deadline = time.monotonic() + _WAIT_SECONDS
        while left:
            assert time.monotonic() < deadline, f"no end of {name} {left}"
            for m in consumer.consume(1000, timeout=0.2):
                number = m.partition()
                assert number is not None
                if m.error() is not None:
                    assert m.error().code() == KafkaError._PARTITION_EOF, m.error()  # type: ignore[union-attr]
                    left.discard(number)
                    continue
                headers = tuple(m.headers() or ())
                stamp, offset = m.timestamp()[1], m.offset()
                assert offset is not None
                found[number].append(Message(m.key(), m.value(), stamp, headers, offset))  # type: ignore[arg-type]
        consumer.close()
        return found

    def ends(self, name: str) -> dict[int, tuple[int, int]]:
        """Log start and log end of every partition."""
        consumer = Consumer({**self._address, "group.id": "asker"})
        found = {
            n: consumer.get_watermark_offsets(TopicPartition(name, n), timeout=_WAIT_SECONDS)
            for n in range(self.partitions(name))
        }
        consumer.close()
        return found

    def checkpoints(self) -> dict[tuple[str, int], int]:
        """The first dirty offset of every partition that was cleaned."""
        path = self.its.data / "cleaner-offset-checkpoint"
        lines = path.read_text().splitlines()[2:] if path.exists() else []
        words = (line.rsplit(" ", 2) for line in lines)
        return {(topic, int(number)): int(offset) for topic, number, offset in words}

    def wait_until_cleaned(self, expected: Mapping[tuple[str, int], int]) -> None:
        """Until the cleaner has come so far."""

        def is_cleaned() -> bool:
            found = self.checkpoints()
            return all(found.get(where, -1) >= offset for where, offset in expected.items())

        _until(is_cleaned, f"cleaned up to {expected}")


def _until(is_so: Callable[[], bool], what: str) -> None:
    """Wait: what a broker has promised, it does a little later."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"not {what}"
        time.sleep(0.01)


def days_ago(days: float, now_ms: int) -> int:
    return now_ms - int(days * _DAY_MS)
