"""What a task of a mirror does, in an executor: stage the records of Kafka at their own offsets."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lastword.clock import system_clock
from lastword.files.root import DataRoot
from lastword.log.batch import Batch
from lastword.log.records import to_table
from lastword.log.staging import Staging
from lastword.model import StagedFile, TopicRow
from lastword.partitioner import partition_for

SCHEMA = "files binary"


@dataclass(frozen=True)
class CopyTask:
    """For `mapInArrow` on rows of Spark's Kafka source: no catalog, only where the files go."""

    root: DataRoot
    topics: Mapping[str, TopicRow]  # by their names in Kafka

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage what comes; a row with the files."""
        with Staging(self.root, system_clock) as staging:
            for batch in batches:
                if batch.num_rows:  # all of one partition: Spark's source reads one in a task
                    topic = self.topics[batch.column("topic")[0].as_py()]
                    staging.add(_mirrored(topic, pa.Table.from_batches([batch])))
            files = pickle.dumps(tuple(staging.finish()))
        yield pa.RecordBatch.from_arrays([pa.array([files], pa.binary())], ["files"])


def staged_files(rows: pa.Table) -> list[StagedFile]:
    """What the tasks have staged."""
    return [file for files in rows["files"].to_pylist() for file in pickle.loads(files)]


def _mirrored(topic: TopicRow, rows: pa.Table) -> Batch:
    """The rows as Staging takes them, with partition and offset as they are in Kafka."""
    table = to_table(rows.select(["key", "value", "timestamp", "headers"]))
    chosen = rows["partition"].cast(pa.int32())
    table = table.set_column(0, "partition", chosen).append_column("offset", rows["offset"])
    hashed = np.concatenate([partition_for(c, topic.partitions) for c in table["key"].chunks])
    strays = pc.and_(pc.not_equal(chosen, pa.array(hashed)), pc.is_valid(table["key"]))
    return Batch(topic, table, bool(pc.any(strays).as_py()))
