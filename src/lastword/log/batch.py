"""A table of given records → one that the topic takes.

Keys are there where the policy needs them, timestamps are set and within bounds, and every record
has its partition. What the topic does not take is refused, all of it at once, with the index of
each bad record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lastword.config import LONG_MAX, TimestampType
from lastword.errors import InvalidRecordError
from lastword.files.parquet import TIMESTAMP
from lastword.log.records import GIVEN, normalised, to_table
from lastword.model import Record, TopicRow
from lastword.partitioner import partition_for


@dataclass(frozen=True)
class Batch:
    """Records for one topic, checked, each with its partition."""

    topic: TopicRow
    records: pa.Table
    has_strays: bool = False  # keys whose hash names another partition


def checked(
    table: pa.Table, topic: TopicRow, now_ms: int, keyless: int, *, is_late: bool = False
) -> Batch:
    """The table as the topic takes it: keys there, timestamps set, a partition for each record.

    `keyless` is how many records without a key went before: they go round robin. Late records were
    within the bounds of time when they were sent, and are not measured again.
    """
    topic.refuse_change("records are appended")
    _refuse_null_keys(table, topic)
    table = table.set_column(1, GIVEN.field(1), _timestamps(table, topic, now_ms, is_late))
    partitions, has_strays = _partitions(table, topic, keyless)
    return Batch(topic, table.set_column(0, GIVEN.field(0), partitions), has_strays)


def mirrored(table: pa.Table, topic: TopicRow) -> Batch:
    """Records of Kafka, which keep their partition and, in a column more, their offset."""
    chosen = table["partition"].cast(pa.int32())
    records = to_table(table.select(["key", "value", "timestamp", "headers"]))
    records = records.set_column(0, GIVEN.field(0), chosen).append_column("offset", table["offset"])
    has_strays = _has_strays(records["key"], chosen, _hashed(records["key"], topic))
    return Batch(topic, records, has_strays)


def checked_record(record: Record, topic: TopicRow, now_ms: int) -> Record:
    """One record in bytes and milliseconds, if the topic takes it: `checked` for a single one."""
    record = normalised(record, 0)
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


def _partitions(table: pa.Table, topic: TopicRow, keyless: int) -> tuple[pa.ChunkedArray, bool]:
    """Explicit, else by the key's hash, else round robin; and whether a key has gone astray."""
    chosen = table["partition"]
    wrong = pc.or_(pc.less(chosen, 0), pc.greater_equal(chosen, topic.partitions))
    if pc.any(wrong).as_py():
        bad = _where(pc.fill_null(wrong, False))
        raise InvalidRecordError(
            f"topic {topic.name!r} has partitions 0 to {topic.partitions - 1}; "
            f"{_listed(bad)} for another one; nothing was appended",
            bad,
        )
    hashed = _hashed(table["key"], topic)
    without_key = _where(pc.and_(pc.is_null(table["key"]), pc.is_null(chosen)))
    hashed[without_key] = (keyless + np.arange(len(without_key))) % topic.partitions
    placed = pc.coalesce(chosen.combine_chunks(), pa.array(hashed, pa.int32()))
    return pa.chunked_array([placed]), _has_strays(table["key"], chosen, hashed)


def _hashed(keys: pa.ChunkedArray, topic: TopicRow) -> NDArray[np.int32]:
    """The partitions that the keys' hashes name."""
    chunks = [partition_for(chunk, topic.partitions) for chunk in keys.chunks]
    return np.concatenate(chunks or [np.zeros(0, np.int32)])


def _has_strays(keys: pa.ChunkedArray, chosen: pa.ChunkedArray, hashed: NDArray[np.int32]) -> bool:
    strays = pc.and_(pc.not_equal(chosen, pa.array(hashed)), pc.is_valid(keys))
    return bool(pc.any(strays).as_py())


def _where(mask: pa.ChunkedArray) -> NDArray[np.int64]:
    return np.flatnonzero(mask.to_numpy())


def _listed(indexes: NDArray[np.int64]) -> str:
    shown = ", ".join(str(i) for i in indexes[:10])
    more = f" and {len(indexes) - 10} more" if len(indexes) > 10 else ""
    return f"record(s) {shown}{more} came" if len(indexes) else ""
