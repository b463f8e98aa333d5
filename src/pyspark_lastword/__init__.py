"""Where Spark looks for `format("lastword")`: it imports every package called `pyspark_…`."""

from typing import Any

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    """The source, when it is asked for: the daemon beside it must load nothing that starts threads."""
    if name != "DefaultSource":
        raise AttributeError(name)
    from lastword.spark import LastwordDataSource

    return LastwordDataSource
