"""A topic as Spark's own Parquet reader reads it: faster, and Spark prunes the columns.

Files know their offsets as deltas only. So their names are joined with a small table of what the
catalog says of each: partition, base offset, and the bounds of what may be read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf

from lastword.opening import open_store
from lastword.spark.asked import batch_reading
from lastword.spark.options import Options
from lastword.spark.plan import Span, batch_spans, timestamp_type
from lastword.spark.rows import schema_for
from lastword.spark.split import pieces_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lastword.log.pieces import Piece

_STORED = (
    "offset_delta long, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)
_STRICT = {
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
_GLOB = re.compile(r"([\\*?{}\[\]^,])")


def dataframe(spark: SparkSession, topic: str | None = None, **options: Any) -> DataFrame:
    """The records of a topic, or of several, separated by commas, as they are now.

    Takes the options of `format("lastword")` as keywords, `store` among them, and gives the same rows,
    in no particular order, through Spark's own Parquet reader. It can be used as long as the files of
    this moment are there: for `file.delete.delay.ms` at least. Where Spark cannot read the files by
    itself, because they are not on a disk, and for `view="latest"`, it is `format("lastword")`.
    """
    given = {name: _as_text(value) for name, value in options.items() if value is not None}
    given.setdefault("store", os.environ.get("LASTWORD_STORE", ""))  # which Spark may not have
    if topic is not None:
        given["subscribe"] = topic
    own = Options(given)
    reading, schema = batch_reading(own), schema_for(own)
    with open_store(reading.store, create=False) as store:
        root = store.base.root
        if not root.is_local or reading.is_latest:
            return spark.read.format("lastword").options(**given).load()
        spans = batch_spans(store.base, reading)
    pieces = [(s, p) for s in spans for p in pieces_of(s.files, s.start, s.end)]
    if not pieces:
        return spark.createDataFrame([], schema)
    paths = [_found_by_spark(root.full(piece.file.facts.path)) for _, piece in pieces]
    stored = spark.read.schema(_STORED).options(**_STRICT).parquet(*paths)
    named = stored.withColumn("_name", f.col("_metadata.file_name"))
    joined = named.join(f.broadcast(spark.createDataFrame(_table(pieces))), "_name")
    joined = joined.withColumn("offset", f.col("_base") + f.col("offset_delta"))
    if any(piece.is_cut for _, piece in pieces):
        joined = joined.where("offset >= _start AND offset < _end")
    return joined.select(*schema.names)


def by_partition(
    frame: DataFrame, topic: str, *, store: str | None = None, order_by: Sequence[Any] = ()
) -> DataFrame:
    """The rows with one Spark partition for each of the topic's: written, that is a file each.

    Rows are shuffled, which loses their order: `order_by` sorts those of a partition.
    """
    with open_store(store, create=False) as opened:
        count = opened.topic(topic).partitions

    hashed = arrow_udf(lambda keys: _partitions(keys, count), "int")(f.col("key").cast("binary"))  # type: ignore[call-overload]
    any_ = f.pmod(f.monotonically_increasing_id(), f.lit(count)).cast("int")
    chosen = f.when(f.col("key").isNull(), any_).otherwise(hashed)
    if "partition" in frame.columns:
        chosen = f.coalesce(f.col("partition"), chosen)
    spread = frame.withColumn("partition", chosen).repartitionById(count, "partition")
    return spread.sortWithinPartitions(*order_by) if order_by else spread


def _partitions(keys: pa.Array, count: int) -> pa.Array:
    """In an executor: the partition of each key."""
    from lastword.partitioner import partition_for

    return pa.array(partition_for(keys, count), pa.int32())


def _found_by_spark(path: str) -> str:
    """The path, whatever characters the folder has in its name."""
    return "file://" + _GLOB.sub(r"\\\1", path)


def _table(pieces: Sequence[tuple[Span, Piece]]) -> pa.Table:
    """What the catalog says of each file, by its name."""
    rows = [
        {
            "_name": piece.file.facts.path.rpartition("/")[2],
            "_base": piece.file.base_offset,
            "_start": piece.start,
            "_end": piece.end,
            "topic": piece.file.topic,
            "partition": piece.file.partition,
            "timestampType": timestamp_type(span.place.topic),
        }
        for span, piece in pieces
    ]
    schema = pa.schema(
        [
            ("_name", pa.string()),
            ("_base", pa.int64()),
            ("_start", pa.int64()),
            ("_end", pa.int64()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("timestampType", pa.int32()),
        ]
    )
    return pa.Table.from_pylist(rows, schema)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(value)
    return str(value)
