"""`format("lastword")` in tests: through Spark, and its plans and tasks in this process."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lastword.spark.asked import batch_reading
from lastword.spark.options import Options
from lastword.spark.plan import batch_spans, share
from lastword.spark.read_task import ReadTask
from lastword.spark.rows import arrow_schema, schema_for
from lastword.store import Store

Row = tuple[str, int, int, bytes | None, bytes | None]  # topic, partition, offset, key, value


def texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as Spark hands them on."""
    found = {}
    for name, value in options.items():
        if isinstance(value, bool):
            found[name] = str(value).lower()
        else:
            found[name] = value if isinstance(value, str) else json.dumps(value)
    return found


def frame(spark: SparkSession, url: object, **options: Any) -> DataFrame:
    """What `format("lastword")` reads."""
    return spark.read.format("lastword").options(store=str(url), **texts(options)).load()


def rows(frame: DataFrame) -> list[Row]:
    """The rows of a DataFrame, in order."""
    found = frame.select("topic", "partition", "offset", "key", "value").collect()
    return sorted((r.topic, r.partition, r.offset, _bytes(r.key), _bytes(r.value)) for r in found)


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def tasks(store: Store, **options: Any) -> list[ReadTask]:
    """The tasks of a batch query, as executors get them."""
    reading = batch_reading(Options(texts(options)))
    planned = share(store.base, batch_spans(store.base, reading), reading)
    return [pickle.loads(pickle.dumps(task)) for task in planned]


def read(some: Iterable[ReadTask], **options: Any) -> list[Row]:
    """What the tasks read, in their order."""
    schema = arrow_schema(schema_for(Options(texts(options))))
    batches = [batch for task in some for batch in task.batches(schema)]
    return arrow_rows(batches, schema)


def arrow_rows(batches: list[pa.RecordBatch], schema: pa.Schema) -> list[Row]:
    table = pa.Table.from_batches(batches, schema)
    columns = [table[name].to_pylist() for name in ("topic", "partition", "offset", "key", "value")]
    return list(zip(*columns, strict=True))


def read_here(store: Store, **options: Any) -> list[Row]:
    """What a batch query reads, without Spark."""
    return read(tasks(store, **options))


def in_log(store: Store, *names: str) -> list[Row]:
    """The same by the door that has no Spark."""
    return [
        (name, r.partition or 0, r.offset or 0, r.key, r.value)  # type: ignore[misc]
        for name in names
        for r in store.topic(name).read()
    ]


def refused(call: Callable[[], object]) -> str:
    """The message of the error that a query raises, our line of it."""
    with pytest.raises(Exception) as raised:
        call()
    lines = str(raised.value).splitlines()
    return next((line for line in reversed(lines) if "Error: " in line), lines[0])
