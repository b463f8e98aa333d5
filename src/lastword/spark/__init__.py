"""Spark's door: `format("lastword")`, batch and streaming, reading and writing.

`source` what Spark asks for · `options` and `queries` what a user asks for · `positions` where that is
in the log · `plan` (with `split`) which files, in which tasks · `task` what runs in an
executor · `batch`, `stream` (with `portion`) the readers · `sink` the writers · `native` the fast path
"""

from lastword.spark.native import by_partition, dataframe

__all__ = ["by_partition", "dataframe"]
