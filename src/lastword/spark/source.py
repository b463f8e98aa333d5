"""`format("lastword")`: what Spark asks for, handed to the readers and writers beside this module.

Spark makes a data source anew, in a Python process of the driver, for each thing it wants to know.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from lastword.errors import InvalidArgumentError
from lastword.spark.asked import batch_reading, subscription, writing
from lastword.spark.batch import BatchReader
from lastword.spark.options import Options
from lastword.spark.rows import schema_for
from lastword.spark.sink import BatchWriter, StreamWriter
from lastword.spark.stream import StreamReader


class LastwordDataSource(DataSource):
    """Topics of a store, read and written by Spark."""

    @classmethod
    def name(cls) -> str:
        return "lastword"

    def schema(self) -> StructType:
        options = Options(self.options)
        subscription(options)  # which is the first thing to be forgotten
        return schema_for(options)

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(batch_reading(Options(self._taken())), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        return StreamReader(self._taken(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise InvalidArgumentError(
                "a log is only appended to: use mode append; to begin anew, delete the topic"
            )
        return BatchWriter(writing(Options(self.options)), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: ARG002, N802
        asked = writing(Options(self.options))
        if asked.writer is not None:
            raise InvalidArgumentError(
                "a stream is an exactly-once writer by itself: leave writerId and writerVersion out"
            )
        return StreamWriter(asked, schema)

    def _taken(self) -> dict[str, str]:
        """The options, which are taken away: tasks get a copy of what is left."""
        options, self.options = dict(self.options), {}
        return options
