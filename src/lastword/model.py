"""The nouns of the log, as frozen values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from lastword.config import LONG_MAX, TopicConfig
from lastword.errors import InvalidArgumentError, InvalidTopicError, MirrorError

Header = tuple[str, bytes | None]

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Record(NamedTuple):
    """One record. To append, give any prefix of the fields; text is encoded as UTF-8.

    A record that was read carries bytes, milliseconds, its partition and its offset. Appended
    again, it is partitioned anew: `partition` only counts where there is no `offset`.
    """

    key: bytes | str | None
    value: bytes | str | None
    timestamp: int | datetime | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    offset: int | None = None
    topic: str | None = None  # where a consumer has it from

    @property
    def is_tombstone(self) -> bool:
        return self.key is not None and self.value is None


class Writer(NamedTuple):
    """An exactly-once writer: appending the same version again is a no-op.

    Versions count per id and topic; topic 0 stands for appends over several topics. A session is
    an id that a producer gave itself, which may be forgotten when it is gone.
    """

    id: str
    version: int
    topic_id: int = 0
    is_session: bool = False


def valid_writer(writer: object, topic_id: int) -> Writer:
    """The exactly-once writer that a caller named as (id, version)."""
    match writer:
        case (str(writer_id), int(version)) if writer_id and 0 <= version <= LONG_MAX:
            return Writer(writer_id, version, topic_id)
    raise InvalidArgumentError(
        f"a writer is (id, version), a text and a number from 0 on, not {writer!r}"
    )


@dataclass(frozen=True)
class Source:
    """The Kafka topic that a topic mirrors, and that alone writes to it."""

    cluster: str  # its id
    topic: str
    topic_id: str  # which a topic of the same name that is made anew does not have


@dataclass(frozen=True)
class TopicRow:
    """A topic as the catalog knows it, with its effective settings."""

    id: int
    name: str
    partitions: int
    config: TopicConfig
    is_scattered: bool = False  # keys may be in other partitions than their hash names
    source: Source | None = None
    paused_ms: int | None = None  # since when the cleaner leaves it alone

    @property
    def is_paused(self) -> bool:
        return self.paused_ms is not None

    def refuse_change(self, what: str) -> None:
        """Raise if only its source may change it."""
        if self.source is not None:
            raise MirrorError(
                f"topic {self.name!r} mirrors {self.source.topic!r} of Kafka cluster "
                f"{self.source.cluster}: {what} there, and not here; "
                "'lastword topics release' makes it an ordinary topic"
            )

    def delete_after_ms(self, now_ms: int) -> int:
        """When the bytes of a file that is retired now may go."""
        return min(LONG_MAX, now_ms + self.config.file_delete_delay_ms)


@dataclass(frozen=True)
class PartitionRow:
    """A partition's offsets, what decides when its active segment is rolled, and who cleans it."""

    topic_id: int
    partition: int
    log_start: int
    log_end: int
    first_dirty: int
    active_base: int
    active_bytes: int
    active_first_ms: int | None  # timestamp of the active segment's first record
    exact_from: int = 0  # who has read up to here, or further, has missed no tombstone
    claim: str | None = None  # which cleaner works on it
    claim_until_ms: int | None = None
    failures: int = 0  # passes that failed in a row
    failure: str = ""
    retry_after_ms: int = 0
    mirrored_ms: int | None = None  # when it last had all that its source had

    def is_claimed(self, now_ms: int) -> bool:
        return self.claim is not None and (self.claim_until_ms or 0) > now_ms


@dataclass(frozen=True)
class FileFacts:
    """What the writer of a file knows of it, before offsets are given out."""

    path: str  # below the store's data root
    records: int
    last_delta: int  # offset of its last record, counted from the file's base offset
    bytes: int
    tombstones: int
    null_keys: int
    first_ms: int  # timestamp of its first record
    max_ms: int
    footer_crc: int  # of the bytes that say where everything is


@dataclass(frozen=True)
class StagedFile:
    """A written file that no commit has taken yet, and where it should go."""

    topic_id: int
    partition: int
    facts: FileFacts
    has_strays: bool = False  # keys whose hash names another partition
    base_offset: int | None = None  # of a mirrored file; others get theirs from the commit


@dataclass(frozen=True)
class Copy:
    """Offsets [start, end) of a partition, to be copied from Kafka to the end of the log here."""

    topic_id: int
    partition: int
    position: int  # log end here; `start` is beyond it if Kafka no longer has what lies between
    start: int
    end: int
    mirrored_ms: int  # when the copy last had all that Kafka had, if this one is done
    may_miss_tombstones: bool = False


@dataclass(frozen=True)
class LogFile:
    """A live file of the log."""

    topic: str
    partition: int
    segment_base: int
    base_offset: int
    last_offset: int
    facts: FileFacts

    @property
    def where(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def is_dense(self) -> bool:
        """Whether no offset is missing in it: nothing was removed."""
        return self.facts.records == self.last_offset - self.base_offset + 1


@dataclass(frozen=True)
class Segment:
    """A run of neighbouring files, named by its base offset."""

    base: int
    last_offset: int
    files: int
    records: int
    bytes: int
    tombstones: int
    first_ms: int
    max_ms: int
    is_active: bool


class AppendedRange(NamedTuple):
    """Where the records of one append went in one partition: offsets base to last, inclusive."""

    topic: str
    partition: int
    base_offset: int
    last_offset: int


@dataclass(frozen=True)
class AppendResult:
    """What an append did. `is_repeat`: an exactly-once writer had done it before."""

    ranges: tuple[AppendedRange, ...]
    is_repeat: bool = False

    @property
    def records(self) -> int:
        return sum(r.last_offset - r.base_offset + 1 for r in self.ranges)


def valid_topic_name(name: str) -> str:
    """The name, if Kafka would take it."""
    if not isinstance(name, str) or not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidTopicError(
            f"topic name {name!r} is not valid: 1 to 249 of the characters a-z A-Z 0-9 . _ -, "
            "and neither '.' nor '..'"
        )
    return name


def valid_offset(offset: object) -> int:
    """The offset, if it is a number at all."""
    if not isinstance(offset, int) or isinstance(offset, bool):
        raise InvalidArgumentError(f"an offset is a whole number, not {offset!r:.80}")
    return offset


def valid_group_name(name: object) -> str:
    """The name, if a consumer group can have it."""
    if not isinstance(name, str) or not name.strip() or len(name) > 249:
        raise InvalidArgumentError(
            f"a group's name is a text of 1 to 249 characters, not {name!r:.80}"
        )
    return name


def valid_partition_count(count: int) -> int:
    """The count, if a topic can have so many partitions."""
    if not isinstance(count, int) or not 1 <= count <= 10_000:
        raise InvalidTopicError(f"a topic has 1 to 10000 partitions, not {count!r}")
    return count
