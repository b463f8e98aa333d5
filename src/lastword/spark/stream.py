"""The streaming reader of `format("lastword")`.

Offsets are `{"topic": {"0": 23}}`, as in checkpoints of Spark's Kafka source; each is the next one to
read. A stream that starts at latest begins with -1, and its first batch, which is empty, finds the
log end: so a restart before that batch is done does not start any later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from lastword.catalog import groups, queries
from lastword.config import LONG_MAX
from lastword.errors import LastwordError
from lastword.foundation import Foundation
from lastword.log.backlog import Backlog
from lastword.opening import open_store
from lastword.spark.asked import LATEST, Reading, TopicPartition, stream_reading
from lastword.spark.options import Options
from lastword.spark.plan import Span, share
from lastword.spark.portion import portion
from lastword.spark.positions import (
    Place,
    Positions,
    from_json,
    lose,
    starts,
    subscribed,
    to_json,
    within,
)
from lastword.spark.read_task import ReadTask
from lastword.spark.rows import arrow_schema

_log = logging.getLogger(__name__)

Offsets = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows topics, from one batch's offsets to the next."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        """Nothing is looked at yet: Spark would bury an error that comes here under one of its own."""
        self._options, self._columns = options, schema
        self._target: Positions | None = None  # where a query that ends by itself will end
        self._last_batch_ms = 0

    def __getstate__(self) -> dict[str, object]:
        """What tasks get: the store's URL may hold a password, and stays in the driver."""
        return {"_schema": self._schema}

    @cached_property
    def _reading(self) -> Reading:
        return stream_reading(Options(self._options))

    @cached_property
    def _schema(self) -> pa.Schema:
        return arrow_schema(self._columns)

    @cached_property
    def _base(self) -> Foundation:
        return open_store(self._reading.store, create=False).base

    def initialOffset(self) -> Offsets:  # noqa: N802
        found = subscribed(self._base, self._reading.subscription)
        first = to_json(starts(self._base, found, self._reading))
        self._note(first)
        return first

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._reading.max_per_trigger is not None:
            return ReadMaxRows(self._reading.max_per_trigger)
        if self._reading.min_per_trigger is not None:
            return ReadMinRows(self._reading.min_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._log_ends()

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        return to_json(self._log_ends())

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        before = from_json(start)
        found = self._found(before)
        last = {key: self._end(place) for key, place in found.items()}
        for key in before.keys() & last.keys():  # before Spark notes the offsets
            at = last[key] if before[key] == LATEST else before[key]
            within(found[key], at, last[key], fail=self._reading.fail_on_data_loss)
        if not isinstance(limit, ReadAllAvailable):
            spans = [self._span(place, before.get(key), last[key]) for key, place in found.items()]
            backlogs = [
                Backlog(s.place.key, s.start, s.end, s.files, self._base.root) for s in spans
            ]
            if self._waits(backlogs):
                return start
            if self._reading.max_per_trigger is not None:
                last = portion(backlogs, self._reading.max_per_trigger)
        if to_json(last) != start:
            self._last_batch_ms = self._base.clock()
        return to_json(last)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        before, after = from_json(start), from_json(end)
        found = self._found(after)
        spans = [self._span(found[k], before.get(k), after[k]) for k in after if k in found]
        return share(self._base, spans, self._reading)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadTask)
        yield from partition.batches(self._schema)

    def commit(self, end: Offsets) -> None:
        """A batch is done: its group, if it has one, has read so far."""
        self._note(end)

    def _note(self, offsets: Offsets) -> None:
        if self._reading.group is None:
            return
        found = {
            p.key: p for p in subscribed(self._base, self._reading.subscription, is_running=True)
        }
        done = {
            (found[key].topic.id, key[1]): offset
            for key, offset in from_json(offsets).items()
            if key in found and offset != LATEST
        }
        try:
            groups.note(self._base.catalog, self._reading.group, done, self._base.clock())
        except LastwordError as error:  # the query does not depend on it
            _log.warning("group %s of a stream: %s", self._reading.group, error)

    def stop(self) -> None:
        if "_base" in self.__dict__:
            self._base.catalog.close()

    def _log_ends(self) -> Positions:
        found = subscribed(self._base, self._reading.subscription, is_running=True)
        return {place.key: place.row.log_end for place in found}

    def _found(self, known: Positions) -> dict[TopicPartition, Place]:
        """The partitions to read: those known, unless they are gone, and new ones."""
        wanted = self._reading.subscription
        found = {p.key: p for p in subscribed(self._base, wanted, is_running=True)}
        for topic, number in sorted(known.keys() - found.keys()):
            lose(f"{topic}-{number}", "is gone", fail=self._reading.fail_on_data_loss)
        allowed = found if self._target is None else known.keys() | self._target.keys()
        return {key: place for key, place in found.items() if key in allowed}

    def _end(self, place: Place) -> int:
        """Log end, or where a query that ends by itself stops."""
        return min(place.row.log_end, (self._target or {}).get(place.key, LONG_MAX))

    def _span(self, place: Place, start: int | None, end: int) -> Span:
        """What lies between two offsets. A partition that is new is read from its beginning."""
        beginning = 0 if place.row.mirrored_ms is None else place.row.log_start  # as in its source
        first = end if start == LATEST else beginning if start is None else start
        number = place.row.partition
        row, files = queries.read_plan(self._base.catalog, place.topic, number, (first, end))
        now = Place(place.topic, row)
        return Span(now, *within(now, first, end, fail=self._reading.fail_on_data_loss), files)

    def _waits(self, backlogs: Sequence[Backlog]) -> bool:
        """Whether it is worth waiting for more."""
        fewest = self._reading.min_per_trigger
        waited_ms = self._base.clock() - self._last_batch_ms
        if fewest is None or self._target is not None or waited_ms >= self._reading.max_delay_ms:
            return False
        return sum(backlog.records for backlog in backlogs) < fewest
