"""Records as users have them ↔ Arrow.

Given to append, they become one table with `partition` (null: not chosen), `timestamp` (null: now),
`key`, `value`, `headers`, in order; what is no record is refused, with its index. Read, the rows of
a batch become Records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lastword.errors import InvalidArgumentError, InvalidRecordError
from lastword.files.parquet import HEADERS, TIMESTAMP
from lastword.model import Header, Record

GIVEN = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
_TEXT_KINDS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
    pa.types.is_null,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_BYTES = 1 << 30  # of one chunk, well below what a binary array can hold


def to_table(records: Any) -> pa.Table:
    """Tuples, Records, or anything that Arrow takes for a table, as one table."""
    if hasattr(records, "__arrow_c_stream__") or hasattr(records, "__arrow_c_array__"):
        try:
            return _from_arrow(pa.table(records))
        except pa.ArrowException as error:
            raise InvalidRecordError(f"the Arrow data is no table of records: {error}") from None
    if isinstance(records, (str, bytes, Mapping)) or not isinstance(records, Iterable):
        raise InvalidRecordError(
            "append takes a list of (key, value) tuples or Records, or an Arrow table, "
            f"not a {type(records).__name__}"
        )
    return _from_rows(records)


def to_records(batch: pa.RecordBatch) -> Iterator[Record]:
    """The rows of a batch as Records; columns that it lacks are None."""
    none = [None] * batch.num_rows

    def column(name: str) -> list[Any]:
        return batch.column(name).to_pylist() if name in batch.schema.names else none

    stamps = none
    if "timestamp" in batch.schema.names:
        stamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
    headers = [
        tuple((h["key"], h["value"]) for h in row) if row else () for row in column("headers")
    ]
    columns = (column("key"), column("value"), stamps, headers, column("partition"))
    return map(Record, *columns, column("offset"))


def as_key(key: object) -> bytes:
    """A key in bytes; InvalidArgumentError if it cannot be one."""
    try:
        found = _bytes(key, "key")
    except (TypeError, ValueError):
        found = None
    if found is None:
        raise InvalidArgumentError(f"a key is bytes or text, not {key!r:.80}")
    return found


def normalised(record: Record, index: int) -> Record:
    """The record in bytes and milliseconds."""
    try:
        return Record(
            _bytes(record.key, "key"),
            _bytes(record.value, "value"),
            _milliseconds(record.timestamp),
            _headers(record.headers) if record.headers else (),
            _whole(record.partition, "partition") if record.offset is None else None,
        )
    except (TypeError, ValueError) as error:
        raise InvalidRecordError(f"record {index}: {error}", [index]) from None


def _bytes(value: object, what: str) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"its {what} is a {type(value).__name__}; give bytes, text or None")


def _milliseconds(value: object) -> int | None:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"its timestamp {value} has no time zone")
        return (value - _EPOCH) // timedelta(milliseconds=1)
    return _whole(value, "timestamp")


def _whole(value: object, what: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise TypeError(f"its {what} is a {type(value).__name__}; give a whole number")


def _headers(headers: Any) -> tuple[Header, ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found = tuple((key, _bytes(value, "header's value")) for key, value in pairs)
    for key, _ in found:
        if not isinstance(key, str):
            raise TypeError(f"a header's key is a {type(key).__name__}; give text")
        key.encode()  # says so if it cannot be UTF-8
    return found


def _from_rows(records: Iterable[Any]) -> pa.Table:
    columns: tuple[list[Any], ...] = ([], [], [], [], [])
    partitions, timestamps, keys, values, headers = columns
    for index, row in enumerate(records):
        if not isinstance(row, tuple) or not 2 <= len(row) <= 7:
            raise InvalidRecordError(
                f"record {index} is {row!r:.80}; give a Record or a tuple "
                "(key, value[, timestamp[, headers[, partition]]])",
                [index],
            )
        record = normalised(row if isinstance(row, Record) else Record(*row), index)
        keys.append(record.key)
        values.append(record.value)
        timestamps.append(record.timestamp)
        headers.append([{"key": k, "value": v} for k, v in record.headers] or None)
        partitions.append(record.partition)
    try:
        arrays = [
            pa.array(column, pa.int64() if field.name == "timestamp" else field.type)
            for field, column in zip(GIVEN, columns, strict=True)
        ]
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidRecordError(f"a number does not fit: {error}") from None
    return pa.table(
        [array.cast(f.type) for f, array in zip(GIVEN, arrays, strict=True)], GIVEN.names
    )


def _from_arrow(table: pa.Table) -> pa.Table:
    names = set(table.column_names)
    if len(names) < len(table.column_names):
        raise InvalidRecordError(f"a column stands twice: {', '.join(table.column_names)}")
    if unknown := names - {*GIVEN.names, "offset"}:
        raise InvalidRecordError(
            f"unknown column {sorted(unknown)[0]!r}; an append takes {', '.join(GIVEN.names)}"
        )
    if missing := {"key", "value"} - names:
        raise InvalidRecordError(f"no column {sorted(missing)[0]!r} in the Arrow table")
    if "offset" in names:  # these records were read: they are partitioned anew
        table = table.drop_columns([n for n in ("offset", "partition") if n in names])
    columns = [
        _cast(table[field.name], field)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in GIVEN
    ]
    return pa.table(columns, schema=GIVEN)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if field.name in ("key", "value") and not any(is_kind(kind) for is_kind in _TEXT_KINDS):
        raise InvalidRecordError(f"column {field.name!r} is {kind}; give binary or string")
    if field.name == "partition" and not pa.types.is_integer(kind) and not pa.types.is_null(kind):
        raise InvalidRecordError(f"column 'partition' is {kind}; give a kind of integer")
    if field.name == "timestamp" and pa.types.is_timestamp(kind) and kind.tz is None:
        raise InvalidRecordError(
            "column 'timestamp' has no time zone; cast it to timestamp('ms', 'UTC')"
        )
    # What is finer than a millisecond is cut; all else must fit.
    options = pc.CastOptions(target_type=field.type, allow_time_truncate=True)
    try:
        chunks = [c for chunk in column.chunks for c in _small_chunks(chunk)]
        cast = [pc.cast(c, options=options) for c in chunks]
        if field.name == "headers":
            _refuse_bad_headers(cast)
    except pa.ArrowException as error:
        raise InvalidRecordError(
            f"column {field.name!r} is {kind}, which does not become {field.type}: {error}"
        ) from None
    return pa.chunked_array(cast, field.type)


def _refuse_bad_headers(chunks: list[pa.Array]) -> None:
    for chunk in chunks:
        pairs = chunk.flatten()
        keys = pairs.field("key")
        if pairs.null_count or keys.null_count:
            raise InvalidRecordError("column 'headers' has a header that is null, or has no key")
        keys.validate(full=True)  # says so if one is not UTF-8


def _small_chunks(chunk: pa.Array) -> list[pa.Array]:
    """The chunk in pieces that a binary array can hold; plain, if it is dictionary-encoded."""
    if pa.types.is_dictionary(chunk.type):
        chunk = chunk.cast(pa.large_binary())
    if chunk.nbytes <= _MOST_BYTES or len(chunk) < 2:
        return [chunk]
    half = len(chunk) // 2
    return _small_chunks(chunk[:half]) + _small_chunks(chunk[half:])
