"""A Kafka cluster, asked through the Java client that Spark's Kafka source brings.

So settings have their Java names, for the client and for the source alike, and there is no second
client to install.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lastword.errors import InvalidArgumentError, KafkaError, SparkError
from lastword.jobs.spark import root_cause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
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


@dataclass(frozen=True)
class Bounds:
    """The offsets that Kafka has of a partition: [start, end), without open transactions."""

    start: int
    end: int


class Cluster:
    """A cluster, by its bootstrap servers and client settings. Use it as a context manager."""

    def __init__(self, spark: SparkSession, bootstrap: str, properties: str = "") -> None:
        """`properties`: the text of a Java properties file with more settings of the client."""
        from py4j.java_gateway import JavaPackage

        jvm: Any = spark._jvm
        self.bootstrap, self._jvm = bootstrap, jvm
        client = jvm.org.apache.kafka.clients.admin.Admin
        if isinstance(client, JavaPackage):  # that is, no class
            raise SparkError(_ADVICE)
        settings = jvm.java.util.Properties()
        for name, value in _TIMEOUTS.items():
            settings.setProperty(name, value)
        with self._translated():
            settings.load(jvm.java.io.StringReader(properties))
            settings.setProperty("bootstrap.servers", bootstrap)
            self._settings = {name: settings.getProperty(name) for name in settings}
            self._admin: Any = client.create(settings)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close(self._jvm.java.time.Duration.ofSeconds(1))

    @property
    def source_options(self) -> dict[str, str]:
        """What Spark's Kafka source and sink need to know to find it."""
        return {f"kafka.{name}": value for name, value in self._settings.items()}

    def id(self) -> str:
        """The cluster's id, which it keeps wherever it is reached."""
        with self._translated():
            return str(self._admin.describeCluster().clusterId().get())

    def names(self) -> list[str]:
        """The names of its topics, without Kafka's own."""
        with self._translated():
            return sorted(self._admin.listTopics().names().get())

    def topics(self, names: Iterable[str]) -> dict[str, KafkaTopic | KafkaError]:
        """These topics, as far as they are there; an error for one that cannot be described."""
        with self._translated():
            futures = self._admin.describeTopics(self._list(names)).topicNameValues()
        found: dict[str, KafkaTopic | KafkaError] = {}
        for name in futures:
            described = self._got(futures[name])
            if isinstance(described, KafkaError):
                if "UnknownTopicOrPartition" not in described.kind:
                    found[name] = described
                continue
            topic_id, partitions = described.topicId().toString(), described.partitions().size()
            found[name] = KafkaTopic(name, topic_id, partitions)
        return found

    def settings(
        self, names: Iterable[str], keys: Iterable[str] | None = None
    ) -> dict[str, dict[str, KafkaSetting] | KafkaError]:
        """The settings of topics, or just these of them."""
        resource = self._jvm.org.apache.kafka.common.config.ConfigResource
        asked = {name: resource(resource.Type.TOPIC, name) for name in names}
        with self._translated():
            futures = self._admin.describeConfigs(self._list(asked.values())).values()
        found: dict[str, dict[str, KafkaSetting] | KafkaError] = {}
        for name, its in asked.items():
            config = self._got(futures[its])
            if isinstance(config, KafkaError):
                found[name] = config
                continue
            entries = (
                self._jvm.java.util.ArrayList(config.entries())
                if keys is None
                else [config.get(key) for key in keys]
            )
            found[name] = {
                entry.name(): KafkaSetting(entry.value(), entry.isDefault())
                for entry in entries
                if entry.value() is not None
            }
        return found

    def bounds(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds | KafkaError]:
        """Where the logs of these partitions start and end now."""
        wanted = list(wanted)
        at = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        with self._translated():
            starts = self._offsets(wanted, at.earliest())
            ends = self._offsets(wanted, at.latest())
        found: dict[TopicPartition, Bounds | KafkaError] = {}
        for where in wanted:
            start, end = starts[where], ends[where]
            if isinstance(start, KafkaError):
                found[where] = start
            elif isinstance(end, KafkaError):
                found[where] = end
            else:
                found[where] = Bounds(start, end)
        return found

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

    def _offsets(
        self, wanted: Iterable[TopicPartition], at: Any
    ) -> dict[TopicPartition, int | KafkaError]:
        places = {w: self._jvm.org.apache.kafka.common.TopicPartition(*w) for w in wanted}
        asked = self._jvm.java.util.HashMap()
        for place in places.values():
            asked.put(place, at)
        committed = self._jvm.org.apache.kafka.common.IsolationLevel.READ_COMMITTED
        options = self._jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(committed)
        answer = self._admin.listOffsets(asked, options)
        found: dict[TopicPartition, int | KafkaError] = {}
        for where, place in places.items():
            offset = self._got(answer.partitionResult(place))
            found[where] = offset if isinstance(offset, KafkaError) else offset.offset()
        return found

    def _list(self, values: Iterable[Any]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for value in values:
            found.add(value)
        return found

    def _got(self, future: Any) -> Any:
        """What the future brings, or the error that it brings."""
        try:
            with self._translated():
                return future.get()
        except KafkaError as error:
            return error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from py4j.protocol import Py4JError, Py4JJavaError

        try:
            yield
        except Py4JJavaError as error:
            cause = root_cause(error.java_exception)
            kind = cause.getClass().getSimpleName()
            problem = cause.getMessage() or kind
            if "Timeout" in kind:
                problem = (
                    f"no answer; is it there, and are the client's settings right? ({problem})"
                )
            raise KafkaError(f"Kafka at {self.bootstrap}: {problem}", kind) from None
        except Py4JError as error:
            raise SparkError(f"Spark has gone away: {error}") from None


def sound(answer: T | KafkaError) -> T:
    """What Kafka said, unless it was an error."""
    if isinstance(answer, KafkaError):
        raise answer
    return answer


def client_properties(path: Path | None) -> str:
    """The text of a file of client settings, as Kafka's own tools take it with --command-config."""
    if path is None:
        return ""
    try:
        return path.read_text("latin-1")  # as Java reads properties
    except OSError as error:
        raise InvalidArgumentError(f"{path}: {error.strerror}") from None
