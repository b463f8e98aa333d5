"""The writers of `format("lastword")`: tasks stage files, the driver commits them, all or nothing.

The story of a write, by what a crash after each step leaves:

1. a task stages files            orphans, which `gc` finds; a task that fails deletes its own
2. all tasks have                 the same; of a task that ran twice, one attempt's files are orphans
3. the driver commits them        the append, whole (the story: catalog.commits)
4. a stream notes the batch       if the crash came before, the batch is written again with its number,
                                  and the catalog knows that number: nothing is appended

The files of Spark's partitions follow each other in their order, so records keep theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from lastword.catalog import queries
from lastword.catalog.retired import condemn_orphans
from lastword.errors import InvalidArgumentError, LastwordError, SparkError
from lastword.log.append import commit_staged
from lastword.model import valid_writer
from lastword.opening import open_store
from lastword.spark.asked import Writing
from lastword.spark.rows import HEADERS
from lastword.spark.write_task import Staged, WriteTask

_COLUMNS: dict[str, tuple[DataType, ...]] = {
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (HEADERS,),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
    "topic": (StringType(),),
}


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each just once: it is known by the query's id and its number.

    Output mode complete writes the whole result again, as Kafka's sink does: newer records of the same
    keys, which compaction consolidates.
    """

    def __init__(self, writing: Writing, schema: StructType) -> None:
        self._writing, self._schema = writing, schema

    def __getstate__(self) -> dict[str, object]:
        """What tasks get: the store's URL may hold a password, and stays in the driver."""
        return {"_task": self._task}

    @cached_property
    def _task(self) -> WriteTask:
        return _write_task(self._writing, self._schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._task.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = [message for message in _staged(messages) if message.files]
        if not staged:  # there is nothing that could be doubled
            return
        query_id = staged[0].query_id
        if query_id is None:
            raise SparkError("Spark did not say which query this is; nothing was appended")
        _commit(self._writing, staged, (f"spark:{query_id}", batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        _abort(self._writing, _staged(messages))


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame, all or nothing."""

    def __init__(self, writing: Writing, schema: StructType) -> None:
        self._writing = writing
        self._task = _write_task(writing, schema)
        self._is_shipped = False

    def __getstate__(self) -> dict[str, object]:
        """Spark pickles it twice: for tasks, which do not get the store's URL, then for the commit."""
        state: dict[str, object] = {"_task": self._task}
        if self._is_shipped:
            state["_writing"] = self._writing
        self._is_shipped = True
        return state

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._task.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self._writing, _staged(messages), self._writing.writer)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(self._writing, _staged(messages))


def _write_task(writing: Writing, schema: StructType) -> WriteTask:
    """What tasks need to know of the topics, after a look at the rows that will come."""
    types = {field.name: field.dataType for field in schema.fields}
    for name, dtype in types.items():
        if name in _COLUMNS and dtype.simpleString() not in _names(name):
            raise InvalidArgumentError(
                f"column {name!r} is {dtype.simpleString()}; it must be {' or '.join(_names(name))}"
            )
    if "value" not in types:
        raise InvalidArgumentError(
            f"no column 'value' among {', '.join(types)}; a null value is a tombstone"
        )
    if writing.topic is None and "topic" not in types:
        raise InvalidArgumentError("say which topic: by the option topic, or in a column 'topic'")
    with open_store(writing.store, create=False) as store:
        catalog, root = store.base.catalog, store.base.root
        if writing.topic is not None:
            topics = [queries.topic_named(catalog, writing.topic)]
        else:
            topics = queries.topics(catalog)
    columns = tuple(name for name in types if name in _COLUMNS and name != "topic")
    return WriteTask(root, {topic.name: topic for topic in topics}, writing.topic, columns)


def _names(column: str) -> list[str]:
    return [dtype.simpleString() for dtype in _COLUMNS[column]]


def _staged(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    """The messages of the tasks that ended well."""
    return [message for message in messages if isinstance(message, Staged)]


def _commit(writing: Writing, staged: Sequence[Staged], by: tuple[str, int] | None) -> None:
    """Append what the tasks have staged, in the order of Spark's partitions."""
    files = [file for message in staged for file in message.files]
    if not files and by is None:
        return
    topics = {topic.id: topic for message in staged for topic in message.topics}
    with open_store(writing.store, create=False) as store:
        base = store.base
        over = 0 if writing.topic is None else queries.topic_named(base.catalog, writing.topic).id
        writer = None if by is None else valid_writer(by, over)
        commit_staged(base.catalog, base.root, list(topics.values()), files, base.clock(), writer)


def _abort(writing: Writing, staged: Sequence[Staged]) -> None:
    """Condemn what was staged, so that no commit can take it any more; `gc` deletes it.

    Spark aborts after a commit that failed, too: whether it failed is for the catalog to say.
    """
    files = [file for message in staged for file in message.files]
    with suppress(LastwordError), open_store(writing.store, create=False) as store:
        orphans = [(file.facts.path, file.facts.bytes) for file in files]
        condemn_orphans(store.base.catalog, orphans, store.base.clock())
