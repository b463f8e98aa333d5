"""Where Spark looks for `format("lastword")`: it imports every package called `pyspark_…`."""

from lastword.spark.source import LastwordDataSource as DefaultSource

__all__ = ["DefaultSource"]
