"""What a task writes, in an executor: it has topics and the data root, and no catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from lastword.clock import system_clock
from lastword.errors import InvalidRecordError, UnknownTopicError
from lastword.files.root import DataRoot
from lastword.log.batch import checked
from lastword.log.records import to_table
from lastword.log.staging import Staging
from lastword.model import StagedFile, TopicRow


@dataclass
class Staged(WriterCommitMessage):
    """What a task has staged, for which topics and which streaming query."""

    files: tuple[StagedFile, ...]
    topics: tuple[TopicRow, ...]
    query_id: str | None


@dataclass(frozen=True)
class WriteTask:
    """What a task needs to stage rows: no catalog."""

    root: DataRoot
    topics: Mapping[str, TopicRow]
    topic: str | None  # all rows go there; else a column says where
    columns: tuple[str, ...]

    def write(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Stage all rows of a task."""
        task = TaskContext.get()
        now_ms, keyless = system_clock(), task.partitionId() if task else 0
        with Staging(self.root, system_clock) as staging:
            for batch in batches:
                for topic, rows in self._by_topic(batch):
                    table = to_table(rows)
                    staging.add(checked(table, topic, now_ms, keyless))
                    keyless += table["key"].null_count
            files = tuple(staging.finish())
        used = {file.topic_id for file in files}
        topics = tuple(topic for topic in self.topics.values() if topic.id in used)
        query_id = task.getLocalProperty("sql.streaming.queryId") if task else None
        return Staged(files, topics, query_id)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicRow, pa.Table]]:
        table = pa.Table.from_batches([batch])
        rows = table.select(self.columns)
        if "key" not in self.columns:
            rows = rows.append_column("key", pa.nulls(rows.num_rows, pa.binary()))
        if self.topic is not None:
            yield self.topics[self.topic], rows
            return
        names = table["topic"]
        if names.null_count:
            raise InvalidRecordError(
                "a row has no topic: its column 'topic' is null, and there is no option topic"
            )
        for name in pc.unique(names).to_pylist():
            if name not in self.topics:
                raise UnknownTopicError(name, known=self.topics)
            yield self.topics[name], rows.filter(pc.equal(names, name))
