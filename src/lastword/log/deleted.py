"""Keys that are deleted: their tombstones, and when these vanish."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lastword.catalog import cleaning
from lastword.catalog.topics import store_settings
from lastword.foundation import Foundation
from lastword.log.alive import Which
from lastword.log.latest import LastRecords, moment_of
from lastword.log.lookup import Lookup
from lastword.model import TopicRow
from lastword.passes import PartitionState


@dataclass(frozen=True)
class Deleted:
    """A deleted key. Its tombstone may go from `vanishes_ms` on.

    None: no pass has covered it yet; from the pass that will, it stays for `delete.retention.ms`.
    `held_by`: a consumer group that has not read it, and keeps it meanwhile.
    """

    key: bytes
    partition: int
    offset: int
    timestamp: int
    vanishes_ms: int | None
    held_by: str = ""


def deleted_keys(
    base: Foundation, topic: TopicRow, partition: int | None = None
) -> Iterator[Deleted]:
    """The tombstones that are the last word on their key."""
    moment = moment_of(base, topic, None if partition is None else [partition])
    minutes = store_settings(base.catalog).offsets_retention_minutes
    found = cleaning.states(base.catalog, [topic], base.clock() - minutes * 60_000)
    states = {state.row.partition: state for state in found}
    lookup = Lookup(base, moment.topic)
    columns = ["partition", "offset", "timestamp", "key"]
    for batch in LastRecords(base, moment, columns, Which.TOMBSTONES).batches():
        stamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
        numbers, offsets, _, keys = (column.to_pylist() for column in batch.columns)
        for number, offset, stamp, key in zip(numbers, offsets, stamps, keys, strict=True):
            if moment.topic.is_scattered and (last := lookup.last(key)) and last.value is not None:
                continue  # another partition has a newer value
            yield Deleted(key, number, offset, stamp, *_fate(states[number], offset))


def _fate(state: PartitionState, offset: int) -> tuple[int | None, str]:
    """When a tombstone may go, and which consumer group keeps it."""
    horizons = (h.at_ms for h in state.horizons if h.start <= offset < h.end)
    behind = next((p.group for p in state.positions if offset >= p.offset), "")
    return next(horizons, None), behind
