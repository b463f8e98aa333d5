"""Records as users give them → one Arrow table with the columns of the log.

The table has `partition` (null: not chosen), `timestamp`, `key`, `value`, `headers`, in order. What
the topic does not take is refused here, all of it at once, with the index of each bad record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lastword.config import LONG_MAX, TimestampType
from lastword.errors import InvalidRecordError
from lastword.files.parquet import HEADERS, TIMESTAMP
from lastword.model import Header, Record, TopicRow
from lastword.partitioner import partition_for

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


def checked(
    table: pa.Table, topic: TopicRow, now_ms: int, keyless: int, *, is_late: bool = False
) -> pa.Table:
    """The table as the topic takes it: keys there, timestamps set, a partition for each record.

    `keyless` is how many records without a key went before: they go round robin. Late records were
    within the bounds of time when they were sent, and are not measured again.
    """
    _refuse_null_keys(table, topic)
    table = table.set_column(1, GIVEN.field(1), _timestamps(table, topic, now_ms, is_late))
    return table.set_column(0, GIVEN.field(0), _partitions(table, topic, keyless))


def checked_record(record: Record, topic: TopicRow, now_ms: int) -> Record:
    """One record in bytes and milliseconds, if the topic takes it: `checked` for a single one."""
    record = _normalised(record, 0)
    oldest, youngest = _timestamp_bounds(topic, now_ms)
    stamp = record.timestamp
    is_fine = (
        (record.key is not None or not topic.config.is_compact)
        and (stamp is None or oldest <= stamp <= youngest)  # type: ignore[operator]
        and (record.partition is None or 0 <= record.partition < topic.partitions)
    )
    if not is_fine:
        checked(to_table([record]), topic, now_ms, keyless=0)  # which says what is wrong
    return record


def _from_rows(records: Iterable[Any]) -> pa.Table:
    columns: tuple[list[Any], ...] = ([], [], [], [], [])
    partitions, timestamps, keys, values, headers = columns
    for index, row in enumerate(records):
        if not isinstance(row, tuple) or not 2 <= len(row) <= 6:
            raise InvalidRecordError(
                f"record {index} is {row!r:.80}; give a Record or a tuple "
                "(key, value[, timestamp[, headers[, partition]]])",
                [index],
            )
        record = _normalised(row if isinstance(row, Record) else Record(*row), index)
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


def _refuse_null_keys(table: pa.Table, topic: TopicRow) -> None:
    if table["key"].null_count and topic.config.is_compact:
        bad = _where(pc.is_null(table["key"]))
        raise InvalidRecordError(
            f"topic {topic.name!r} is compacted, so every record needs a key; "
            f"{_listed(bad)} without one; nothing was appended",
            bad,
        )


def _timestamps(table: pa.Table, topic: TopicRow, now_ms: int, is_late: bool) -> pa.ChunkedArray:
    if topic.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        now = pa.scalar(now_ms, pa.int64())
        return pa.chunked_array([pa.repeat(now, table.num_rows).cast(TIMESTAMP)])
    stamps = pc.fill_null(table["timestamp"].cast(pa.int64()), now_ms)
    oldest, youngest = _timestamp_bounds(topic, now_ms)
    wrong = pc.or_(pc.less(stamps, oldest), pc.greater(stamps, youngest))
    if not is_late and pc.any(wrong).as_py():
        bad = _where(wrong)
        raise InvalidRecordError(
            f"topic {topic.name!r} takes timestamps from {oldest} to {youngest} "
            f"(message.timestamp.before.max.ms, message.timestamp.after.max.ms); "
            f"{_listed(bad)} outside, the first at {stamps[bad[0]].as_py()}; nothing was appended",
            bad,
        )
    return stamps.cast(TIMESTAMP)


def _timestamp_bounds(topic: TopicRow, now_ms: int) -> tuple[int, int]:
    config = topic.config
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return 0, LONG_MAX
    oldest = max(0, now_ms - config.message_timestamp_before_max_ms)
    return oldest, min(LONG_MAX, now_ms + config.message_timestamp_after_max_ms)


def _partitions(table: pa.Table, topic: TopicRow, keyless: int) -> pa.ChunkedArray:
    """Explicit, else by the key's hash, else round robin."""
    chosen = table["partition"]
    wrong = pc.or_(pc.less(chosen, 0), pc.greater_equal(chosen, topic.partitions))
    if pc.any(wrong).as_py():
        bad = _where(pc.fill_null(wrong, False))
        raise InvalidRecordError(
            f"topic {topic.name!r} has partitions 0 to {topic.partitions - 1}; "
            f"{_listed(bad)} for another one; nothing was appended",
            bad,
        )
    if chosen.null_count == 0:
        return chosen
    hashed = np.concatenate(
        [partition_for(chunk, topic.partitions) for chunk in table["key"].chunks]
        or [np.zeros(0, np.int32)]
    )
    without_key = _where(pc.and_(pc.is_null(table["key"]), pc.is_null(chosen)))
    hashed[without_key] = (keyless + np.arange(len(without_key))) % topic.partitions
    return pa.chunked_array([pc.coalesce(chosen.combine_chunks(), pa.array(hashed, pa.int32()))])


def _where(mask: pa.ChunkedArray) -> NDArray[np.int64]:
    return np.flatnonzero(mask.to_numpy())


def _listed(indexes: NDArray[np.int64]) -> str:
    shown = ", ".join(str(i) for i in indexes[:10])
    more = f" and {len(indexes) - 10} more" if len(indexes) > 10 else ""
    return f"record(s) {shown}{more} came" if len(indexes) else ""


def _normalised(record: Record, index: int) -> Record:
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
