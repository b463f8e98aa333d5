"""The options of `format("lastword")`: the names, defaults and rules of Spark's Kafka source and sink.

Each option is a row of one table, from which docs/spark-options.md is made. Names are
case-insensitive. What only makes sense for a broker is taken and ignored, so that a job can be moved
by changing its format; an option that is nearly one of ours is a mistake, and an error.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from lastword.config import LONG_MAX
from lastword.errors import InvalidArgumentError


@dataclass(frozen=True)
class Option:
    """One option: for which queries, its default, and what it does."""

    name: str
    queries: str  # of b, s and w: batch reads, streaming reads, writes
    default: str
    sentence: str


# fmt: off
OPTIONS = [
    Option("store", "bsw", "LASTWORD_STORE", "The store's URL; `path`, the argument of `load` and `save`, will do too."),
    Option("subscribe", "bs", "", "Topics, separated by commas. One of these three must be given."),
    Option("subscribePattern", "bs", "", "A regular expression for the whole name of topics. New ones are found while a stream runs."),
    Option("assign", "bs", "", 'Partitions: `{"users": [0, 1]}`.'),
    Option("view", "b", "log", "`latest`: one row per key, its last, deleted keys absent; exact, cleaned or not, at one moment."),
    Option("columns", "bs", "", "Read only these columns, separated by commas; as does a schema with fewer columns."),
    Option("includeHeaders", "bs", "false", "Add the column `headers`."),
    Option("startingOffsets", "bs", "earliest; streams latest", '`earliest`, `latest` (streams only), or `{"users": {"0": 23, "1": -2}}`; -2 is earliest, -1 latest. All partitions must be named.'),
    Option("startingTimestamp", "bs", "", "Start with the first record as young as this, in milliseconds. Beats the two around it."),
    Option("startingOffsetsByTimestamp", "bs", "", "The same for each partition, as JSON. Beats `startingOffsets`."),
    Option("startingOffsetsByTimestampStrategy", "bs", "error", "If no record is so young: `error`, or start at `latest`."),
    Option("endingOffsets", "b", "latest", "Where to end, exclusive: `latest`, or as JSON, where -1 is latest."),
    Option("endingTimestamp", "b", "", "End before the first record as young as this. Beats the other two."),
    Option("endingOffsetsByTimestamp", "b", "", "The same for each partition, as JSON. Beats `endingOffsets`."),
    Option("minPartitions", "bs", "", "Split the work into about so many tasks at the least, by live records."),
    Option("maxRecordsPerPartition", "bs", "", "No task reads more records than this."),
    Option("ordered", "bs", "false", "`true`: a task for each partition, which reads it in order; for sinks that must keep the order, such as Kafka's."),
    Option("failOnDataLoss", "bs", "true", "Fail if records were dropped before they were read; `false` goes on without them. What compaction removes is no loss."),
    Option("maxOffsetsPerTrigger", "s", "", "At most so many live records in a batch, shared among the partitions."),
    Option("minOffsetsPerTrigger", "s", "", "Wait until so many have come, …"),
    Option("maxTriggerDelay", "s", "15m", "… but no longer than this."),
    Option("kafka.group.id", "s", "", "The stream's consumer group: a batch is committed there when the next one begins, so that its lag is seen and tombstones wait for it."),
    Option("topic", "w", "", "Write to this topic; else each row's column `topic` says where."),
    Option("writerId", "w", "", "Batch writes: with `writerVersion`, an exactly-once writer; the same version again writes nothing."),
    Option("writerVersion", "w", "", "A number that grows with each write of this writer. A stream has both by itself."),
]
# fmt: on
_NAMES = {option.name.lower(): option.name for option in OPTIONS} | {"path": "path"}
_OF_A_BROKER = (
    "groupidprefix",
    "kafkaconsumer.polltimeoutms",
    "fetchoffset.numretries",
    "fetchoffset.retryintervalms",
    "partition.metadata.cache.ttl.ms",
)
_REFUSED = (
    "kafka.auto.offset.reset",
    "kafka.enable.auto.commit",
    "kafka.interceptor.classes",
    "kafka.key.deserializer",
    "kafka.value.deserializer",
    "kafka.key.serializer",
    "kafka.value.serializer",
)
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class Options:
    """The options as a user gave them, looked up in any case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        for name in self._given:
            _refuse(name)

    def __getitem__(self, name: str) -> str | None:
        return self._given.get(name.lower())

    @property
    def store(self) -> str | None:
        return self["store"] or self["path"]

    def flag(self, name: str, default: bool) -> bool:
        """`true` or `false`."""
        match (self[name] or str(default)).lower():
            case "true":
                return True
            case "false":
                return False
        raise InvalidArgumentError(f"option {name} is true or false, not {self[name]!r}")

    def number(self, name: str, *, least: int = 0) -> int | None:
        """A whole number, from `least` on."""
        text = self[name]
        if text is None:
            return None
        if not re.fullmatch(r"\s*-?\d{1,19}\s*", text) or not least <= int(text) <= LONG_MAX:
            raise InvalidArgumentError(
                f"option {name} is a whole number from {least} on, not {text!r}"
            )
        return int(text)

    def words(self, name: str) -> tuple[str, ...]:
        """What is separated by commas."""
        return tuple(word.strip() for word in (self[name] or "").split(",") if word.strip())

    def duration_ms(self, name: str, default: str) -> int:
        """A time such as 30s; milliseconds if it has no unit."""
        text = (self[name] or default).strip().lower()
        found = re.fullmatch(r"(\d+)\s*([a-z]*)", text)
        if found is None or (found[2] or "ms") not in _UNITS_MS:
            raise InvalidArgumentError(f"option {name} is a time like 30s, 15m or 1h, not {text!r}")
        return int(found[1]) * _UNITS_MS[found[2] or "ms"]


def _refuse(name: str) -> None:
    """Raise if the option, in lower case, cannot be meant."""
    if name in _REFUSED:
        raise InvalidArgumentError(
            f"option {name} is not supported: startingOffsets says where to start, and keys and "
            "values are binary"
        )
    if name in _NAMES or name in _OF_A_BROKER or name.startswith("kafka."):
        return
    if meant := difflib.get_close_matches(name, _NAMES, n=1, cutoff=0.85):
        raise InvalidArgumentError(f"unknown option {name!r}; did you mean {_NAMES[meant[0]]!r}?")
