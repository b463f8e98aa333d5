"""The batch reader of `format("lastword")`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lastword.opening import open_store
from lastword.spark.asked import Reading
from lastword.spark.plan import batch_spans, share
from lastword.spark.read_task import ReadTask
from lastword.spark.rows import arrow_schema


class BatchReader(DataSourceReader):
    """Reads topics as they are when Spark plans the DataFrame, at its first action.

    It takes no filters, though Spark could push some down: Spark 4.3 keeps the plan of a filtered query
    for the whole DataFrame, and other queries of it would miss rows (decision 14).
    """

    def __init__(self, reading: Reading, schema: StructType) -> None:
        self._reading: Reading | None = reading
        self._schema = arrow_schema(schema)

    def __getstate__(self) -> dict[str, object]:
        """What tasks get: the store's URL may hold a password, and stays in the driver."""
        return {**self.__dict__, "_reading": None}

    def partitions(self) -> Sequence[InputPartition]:
        assert self._reading is not None
        with open_store(self._reading.store, create=False) as store:
            return share(store.base, batch_spans(store.base, self._reading), self._reading)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ReadTask):  # else there is nothing to read
            yield from partition.batches(self._schema)
