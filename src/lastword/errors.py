"""Everything that lastword raises on purpose.

    LastwordError
    ├── StoreError                    the store as a whole cannot be used
    │   ├── NotAStoreError            nothing of ours is at that address
    │   ├── CatalogVersionError       made by another version of lastword
    │   ├── CatalogError              the database refused or went away
    │   └── StorageError              the file system refused: disk full, no permission
    ├── InvalidArgumentError          a call that cannot mean anything
    ├── UnknownTopicError             no such topic, or no such partition of it
    ├── UnknownGroupError             no such consumer group
    ├── UnknownPassError              no such pass
    ├── TopicExistsError
    ├── InvalidTopicError             a name or a number of partitions that cannot be
    ├── InvalidConfigError            an unknown setting, or a value out of its bounds
    ├── InvalidRecordError            records that the topic does not take; nothing was appended
    ├── OffsetOutOfRangeError         a position outside [log start, log end]
    ├── NoOffsetError                 a group has committed nothing, and is not to choose itself
    ├── DataLossError                 records were dropped before a query had read them
    ├── MissedTombstonesError         deletions since a position are no longer known
    ├── MirrorError                   a topic here and one in Kafka would not be the same
    ├── KafkaError                    Kafka did not answer, or refused
    ├── PolicyViolationError          the topic's cleanup.policy forbids it
    ├── BrokenFileError               a file of the log is missing or corrupt
    ├── StaleWriterError              an exactly-once writer that another one has overtaken
    ├── ConflictError                 the log changed under an operation, which changed nothing
    ├── BooksError                    a pass whose numbers do not add up; it was not committed
    ├── SparkError                    Spark could not be started, or a job of it failed
    └── FlushError                    a producer could not append; the records are kept

Facts are attributes; the sentence is made from them. Errors of SQLAlchemy, Arrow and the
operating system are translated where they enter: in `catalog.engine` and `files.root`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LastwordError(Exception):
    """The root of all errors raised by lastword."""


class StoreError(LastwordError):
    """The store as a whole cannot be used."""


class NotAStoreError(StoreError):
    """Nothing of ours is at that address."""

    def __init__(self, address: str, problem: str) -> None:
        self.address = address
        super().__init__(f"{address}: {problem}")


class CatalogVersionError(StoreError):
    """The catalog was made by another version of lastword."""

    def __init__(self, address: str, found: int, expected: int) -> None:
        self.address, self.found, self.expected = address, found, expected
        advice = (
            "upgrade lastword to open it"
            if found > expected
            else "open it with the version of lastword that made it"
        )
        super().__init__(
            f"{address}: its catalog has schema version {found}, "
            f"this lastword reads version {expected}; {advice}"
        )


class CatalogError(StoreError):
    """The catalog's database refused, or went away."""

    def __init__(self, address: str, problem: str) -> None:
        self.address = address
        super().__init__(f"catalog of {address}: {problem}")


class StorageError(StoreError):
    """The file system below the store refused."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        super().__init__(f"{path}: {problem}")


class InvalidArgumentError(LastwordError, ValueError):
    """A call that cannot mean anything."""


class UnknownTopicError(LastwordError):
    """No such topic, or no such partition of it."""

    def __init__(
        self, topic: str, partition: int | None = None, *, known: Iterable[str] = ()
    ) -> None:
        self.topic, self.partition = topic, partition
        if partition is None:
            sentence = f"no topic {topic!r}{did_you_mean(topic, known)}"
        else:
            sentence = f"topic {topic!r} has no partition {partition}"
        super().__init__(sentence)


class UnknownGroupError(LastwordError):
    """No such consumer group: it has no members, and has committed nothing."""

    def __init__(self, group: str, known: Iterable[str] = ()) -> None:
        self.group = group
        super().__init__(f"no consumer group {group!r}{did_you_mean(group, known)}")


class UnknownPassError(LastwordError):
    """No such pass, or its topic has been deleted."""

    def __init__(self, pass_id: int) -> None:
        self.pass_id = pass_id
        super().__init__(f"no pass {pass_id}; passes go with their topic")


class TopicExistsError(LastwordError):
    """A topic of that name is there already."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"topic {topic!r} exists already; delete it first, or alter it")


class InvalidTopicError(LastwordError):
    """A topic's name, or its number of partitions, cannot be."""


class InvalidConfigError(LastwordError):
    """An unknown setting, or a value that it does not take."""


class InvalidRecordError(LastwordError):
    """Records that the topic does not take; nothing of the append was written."""

    def __init__(self, problem: str, indexes: Iterable[int] = ()) -> None:
        self.indexes = tuple(int(i) for i in indexes)
        super().__init__(problem)


class OffsetOutOfRangeError(LastwordError):
    """A position outside [log start, log end]."""

    def __init__(
        self, topic: str, partition: int, offset: int, log_start: int, log_end: int
    ) -> None:
        self.topic, self.partition, self.offset = topic, partition, offset
        self.log_start, self.log_end = log_start, log_end
        side = "below log start" if offset < log_start else "beyond log end"
        super().__init__(
            f"{topic}-{partition}: offset {offset} is {side}; "
            f"valid positions are {log_start} to {log_end}"
        )


class NoOffsetError(LastwordError):
    """A consumer group has committed nothing of a partition, and shall not choose where to start."""

    def __init__(self, group: str, where: str) -> None:
        self.group, self.where = group, where
        super().__init__(
            f"group {group!r} has committed no offset of {where}, and auto_offset_reset is none; "
            "set one with 'lastword groups reset', or say earliest or latest"
        )


class DataLossError(LastwordError):
    """Records were dropped before a query had read them."""

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        super().__init__(
            f"{where}: {problem}; what was not read yet is lost. "
            "With the option failOnDataLoss=false the query goes on without it"
        )


class MissedTombstonesError(LastwordError):
    """Deletions since a position are no longer known: tombstones beyond it have gone."""

    def __init__(self, where: str, offset: int, exact_from: int) -> None:
        self.where, self.offset, self.exact_from = where, offset, exact_from
        super().__init__(
            f"{where}: tombstones between offsets {offset} and {exact_from} have gone, so deletions "
            "may be missed; start over from latest(), or ask for changes with or_full=True"
        )


class MirrorError(LastwordError):
    """A topic here and its counterpart in Kafka would no longer be the same."""


class KafkaError(LastwordError):
    """A Kafka cluster did not answer, or refused. `kind` is Kafka's own name of the error."""

    def __init__(self, sentence: str, kind: str = "") -> None:
        self.kind = kind
        super().__init__(sentence)


class PolicyViolationError(LastwordError):
    """The topic's cleanup.policy forbids it."""


MISSING = "is missing"


class BrokenFileError(LastwordError):
    """A file of the log is missing or corrupt. `name` is its path below the data root."""

    def __init__(
        self, path: str, problem: str, name: str, where: str, offsets: tuple[int, int]
    ) -> None:
        self.path, self.problem, self.name = path, problem, name
        self.is_missing = problem == MISSING
        self.where, self.offsets = where, offsets
        super().__init__(
            f"{path} ({where}, offsets {offsets[0]} to {offsets[1]}) {problem}; "
            "'lastword check' lists all that is broken"
        )


class StaleWriterError(LastwordError):
    """An exactly-once writer came with a version older than the last one appended."""

    def __init__(self, writer_id: str, version: int, last_version: int) -> None:
        self.writer_id, self.version, self.last_version = writer_id, version, last_version
        super().__init__(
            f"writer {writer_id!r} appended version {last_version} already, so version {version} "
            "is refused; versions must grow, and another process may be writing under this id"
        )


class ConflictError(LastwordError):
    """The log changed under an operation, which therefore changed nothing."""


class BooksError(LastwordError):
    """A pass whose numbers do not add up; it was not committed."""

    def __init__(self, where: str, what: str, found: int, expected: int) -> None:
        self.where, self.what, self.found, self.expected = where, what, found, expected
        super().__init__(
            f"{where}: the books of the pass do not add up: {what} {found}, expected {expected}; "
            "nothing was changed. 'lastword check' says whether the files are right"
        )


class SparkError(LastwordError):
    """Spark could not be started, or one of its jobs failed."""


class FlushError(LastwordError):
    """A producer could not append; the records are kept and the next flush tries again."""

    def __init__(self, pending: int, cause: BaseException) -> None:
        self.pending, self.cause = pending, cause
        super().__init__(
            f"flush failed, {pending} record(s) pending: {cause} "
            "(flush() tries again, take_pending() hands them back)"
        )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """'; did you mean "x"?' for the known word nearest to this one, or nothing."""
    nearest = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
