"""Rows as Spark's Kafka source has them: the columns, their types, and how a stored batch becomes them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lastword.errors import InvalidArgumentError, did_you_mean
from lastword.log.pieces import Piece
from lastword.spark.options import Options

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}
_STORED = ("key", "value", "timestamp", "headers")


def schema_for(options: Options) -> StructType:
    """The columns that the options ask for."""
    with_headers = options.flag("includeHeaders", False)
    names = options.words("columns") or [n for n in COLUMNS if n != "headers" or with_headers]
    for name in names:
        if name not in COLUMNS:
            raise InvalidArgumentError(
                f"no column {name!r}{did_you_mean(name, COLUMNS)}; there are {', '.join(COLUMNS)}"
            )
    return StructType([StructField(name, COLUMNS[name]) for name in names])


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark expects of a batch; refuses columns that the source does not have."""
    for column in schema.fields:
        known = COLUMNS.get(column.name)
        if known is None:
            raise InvalidArgumentError(
                f"the source has a fixed schema, without a column {column.name!r}"
                f"{did_you_mean(column.name, COLUMNS)}; choose among {', '.join(COLUMNS)}"
            )
        if column.dataType.simpleString() != known.simpleString():
            raise InvalidArgumentError(
                f"the source has a fixed schema: column {column.name!r} is {known.simpleString()}, "
                f"not {column.dataType.simpleString()}; cast it after reading"
            )
    return to_arrow_schema(schema, timezone="UTC")


def stored_columns(schema: pa.Schema) -> list[str]:
    """Which columns of a file are needed for these rows, besides `offset_delta`."""
    return [name for name in schema.names if name in _STORED]


def shown(
    batch: pa.RecordBatch, piece: Piece, timestamp_type: int, schema: pa.Schema
) -> pa.RecordBatch:
    """The stored batch as Spark's rows."""
    file, count = piece.file, batch.num_rows

    def column(field: pa.Field) -> pa.Array:
        match field.name:
            case "topic":
                return pa.repeat(pa.scalar(file.topic), count)
            case "partition":
                return pa.array(np.full(count, file.partition, np.int32))
            case "timestampType":
                return pa.array(np.full(count, timestamp_type, np.int32))
            case "offset":
                return pa.array(batch.column("offset_delta").to_numpy() + file.base_offset)
        stored = batch.column(field.name)
        return stored if stored.type == field.type else stored.cast(field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)
