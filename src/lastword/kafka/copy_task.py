"""What a task of a mirror does, in an executor: stage the records of Kafka at their own offsets."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from lastword.clock import system_clock
from lastword.files.root import DataRoot
from lastword.log.batch import mirrored
from lastword.log.staging import Staging
from lastword.model import StagedFile, TopicRow

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
                    staging.add(mirrored(pa.Table.from_batches([batch]), topic))
            files = pickle.dumps(tuple(staging.finish()))
        yield pa.RecordBatch.from_arrays([pa.array([files], pa.binary())], ["files"])


def staged_files(rows: pa.Table) -> list[StagedFile]:
    """What the tasks have staged."""
    return [file for files in rows["files"].to_pylist() for file in pickle.loads(files)]
