"""Spark's door: `format("lastword")`, batch and streaming, reading and writing.

`source` what Spark asks for · `options` and `asked` what a user asks for · `positions` where that is
in the log · `plan` (with `split`) which files, in which tasks · `read_task`, `write_task` what
runs in an executor · `batch`, `stream` (with `portion`) the readers · `sink` the writers · `native` the
fast path
"""

from lastword.spark.native import by_partition, dataframe
from lastword.spark.source import LastwordDataSource

__all__ = ["LastwordDataSource", "by_partition", "dataframe"]
