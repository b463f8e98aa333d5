"""A Kafka cluster, asked through the Java client that Spark's Kafka source brings.

So settings have their Java names, for the client and for the source alike, and there is no second
client to install.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastword.errors import InvalidArgumentError, KafkaError, SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TopicPartition = tuple[str, int]

_TIMEOUTS = {"request.timeout.ms": "10000", "default.api.timeout.ms": "20000"}
_ADVICE = (
    "Spark has no Kafka source here. Give its package to Spark when it starts, by --packages or as "
    "spark.jars.packages (org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION), or its jars by --jars"
)


@dataclass(frozen=True)
class KafkaSetting:
    """A setting of a topic in Kafka, and whether it is Kafka's own default."""

    value: str
    is_default: bool


@dataclass(frozen=True)
class KafkaTopic:
    """A topic as Kafka describes it."""

    name: str
    id: str
    partitions: int
    settings: Mapping[str, KafkaSetting] = field(default_factory=dict)


@dataclass(frozen=True)
class Bounds:
    """The offsets that Kafka has of a partition: [start, end), without open transactions."""

    start: int
    end: int


class Cluster:
    """A cluster, by its bootstrap servers and client settings. Use it as a context manager."""

    def __init__(
        self, spark: SparkSession, bootstrap: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self.settings = {"bootstrap.servers": bootstrap, **(settings or {})}
        self.bootstrap = bootstrap
        from py4j.java_gateway import JavaPackage

        jvm: Any = spark._jvm
        self._jvm = jvm
        client = jvm.org.apache.kafka.clients.admin.Admin
        if isinstance(client, JavaPackage):  # that is, no class
            raise SparkError(_ADVICE)
        properties = self._jvm.java.util.Properties()
        for name, value in {**_TIMEOUTS, **self.settings}.items():
            properties.setProperty(name, value)
        with self._translated():
            self._admin: Any = client.create(properties)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close(self._jvm.java.time.Duration.ofSeconds(1))

    @property
    def source_options(self) -> dict[str, str]:
        """What Spark's Kafka source and sink need to know to find it."""
        return {f"kafka.{name}": value for name, value in self.settings.items()}

    def id(self) -> str:
        """The cluster's id, which it keeps wherever it is reached."""
        with self._translated():
            return str(self._admin.describeCluster().clusterId().get())

    def names(self) -> list[str]:
        """The names of its topics, without Kafka's own."""
        with self._translated():
            return sorted(self._admin.listTopics().names().get())

    def topics(self, names: Iterable[str], *, with_settings: bool = False) -> dict[str, KafkaTopic]:
        """These topics, as far as they are there."""
        with self._translated():
            wanted = {name: self._list([name]) for name in names}
            futures = {
                n: self._admin.describeTopics(one).allTopicNames() for n, one in wanted.items()
            }
            found = {}
            for name, future in futures.items():
                if (described := self._unless_unknown(future)) is not None:
                    its = described[name]
                    settings = self._settings(name) if with_settings else {}
                    topic_id, partitions = its.topicId().toString(), its.partitions().size()
                    found[name] = KafkaTopic(name, topic_id, partitions, settings)
            return found

    def bounds(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Where the logs of these partitions start and end now."""
        wanted = list(wanted)
        with self._translated():
            starts = self._offsets(wanted, self._offset_spec().earliest())
            ends = self._offsets(wanted, self._offset_spec().latest())
        return {where: Bounds(starts[where], ends[where]) for where in wanted}

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """A new topic, replicated as the brokers do by default."""
        optional = self._jvm.java.util.Optional
        its_settings = self._jvm.java.util.HashMap()
        for key, value in settings.items():
            its_settings.put(key, value)
        new = self._jvm.org.apache.kafka.clients.admin.NewTopic(
            name, optional.of(partitions), optional.empty()
        ).configs(its_settings)
        with self._translated():
            self._admin.createTopics(self._list([new])).all().get()

    def _settings(self, name: str) -> dict[str, KafkaSetting]:
        config = self._jvm.org.apache.kafka.common.config.ConfigResource
        kind = config.Type.TOPIC
        resource = config(kind, name)
        described = self._admin.describeConfigs(self._list([resource])).all().get()[resource]
        return {
            entry.name(): KafkaSetting(entry.value(), entry.isDefault())
            for entry in self._jvm.java.util.ArrayList(described.entries())
            if entry.value() is not None
        }

    def _offset_spec(self) -> Any:
        return self._jvm.org.apache.kafka.clients.admin.OffsetSpec

    def _offsets(self, wanted: Iterable[TopicPartition], at: Any) -> dict[TopicPartition, int]:
        places = {w: self._jvm.org.apache.kafka.common.TopicPartition(*w) for w in wanted}
        asked = self._jvm.java.util.HashMap()
        for place in places.values():
            asked.put(place, at)
        committed = self._jvm.org.apache.kafka.common.IsolationLevel.READ_COMMITTED
        options = self._jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(committed)
        found = self._admin.listOffsets(asked, options).all().get()
        return {where: found[place].offset() for where, place in places.items()}

    def _list(self, values: Iterable[Any]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for value in values:
            found.add(value)
        return found

    @staticmethod
    def _unless_unknown(future: Any) -> Any:
        """What it brings, or None if Kafka does not know the topic."""
        from py4j.protocol import Py4JJavaError

        try:
            return future.get()
        except Py4JJavaError as error:
            if "UnknownTopicOrPartition" in str(error.java_exception):
                return None
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from py4j.protocol import Py4JError, Py4JJavaError

        try:
            yield
        except Py4JJavaError as error:
            cause = error.java_exception
            while (inner := cause.getCause()) is not None:
                cause = inner
            kind = cause.getClass().getSimpleName()
            problem = cause.getMessage() or kind
            if "Timeout" in kind:
                problem = (
                    f"no answer; is it there, and are the client's settings right? ({problem})"
                )
            raise KafkaError(f"Kafka at {self.bootstrap}: {problem}") from None
        except Py4JError as error:
            raise SparkError(f"Spark has gone away: {error}") from None


def client_settings(path: Path | None) -> dict[str, str]:
    """The Java properties in a file, as Kafka's own tools take them with --command-config."""
    if path is None:
        return {}
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except OSError as error:
        raise InvalidArgumentError(f"{path}: {error.strerror}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line or line.startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise InvalidArgumentError(f"{path}: line {number} is not NAME=VALUE")
        found[name.strip()] = value.strip()
    return found
