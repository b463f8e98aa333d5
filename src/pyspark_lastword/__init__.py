"""Where Spark looks for `format("lastword")`: it imports every package called `pyspark_…`."""

from lastword.spark import LastwordDataSource as DefaultSource

__all__ = ["DefaultSource"]
