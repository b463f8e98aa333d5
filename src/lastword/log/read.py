"""Read a partition, in offset order, in bounded memory.

A reader plans a page of files at a time from its position. A file that has been retired under it,
and whose bytes are gone, sends it back to plan again from where it is: offsets are for ever, so
the new files hold what the old ones held, less what was obsolete.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa

from lastword.catalog import queries
from lastword.catalog.engine import Catalog
from lastword.errors import (
    BrokenFileError,
    InvalidArgumentError,
    LastwordError,
    OffsetOutOfRangeError,
    did_you_mean,
)
from lastword.files.parquet import HEADERS, TIMESTAMP
from lastword.files.reader import FileReader
from lastword.files.root import DataRoot
from lastword.log.records import to_records
from lastword.model import LogFile, Record, TopicRow

COLUMNS = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP, nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
_Read = Callable[[], pa.Table]
_PAGE_FILES = 1_000
THREADS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class Span:
    """What to read: offsets [start, end) of a partition, `limit` records of them at most."""

    partition: int
    start: int
    end: int
    limit: int | None = None
    from_log_start: bool = False  # the start follows log start until the first record is read


class Reader:
    """Records of a topic, in offset order within a partition: iterable, or as Arrow.

    It ends at the log end of the moment it was made. Each iteration starts anew.
    """

    def __init__(
        self,
        catalog: Catalog,
        root: DataRoot,
        topic: TopicRow,
        spans: Sequence[Span],
        columns: Sequence[str] | None = None,
    ) -> None:
        self._catalog, self._root, self._topic, self._spans = catalog, root, topic, spans
        self.columns = known_columns(columns)
        self.schema = shown_schema(self.columns)

    def __iter__(self) -> Iterator[Record]:
        for batch in self.batches():
            yield from to_records(batch)

    def to_arrow(self) -> pa.Table:
        """All of it as one table, in memory."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def batches(self) -> Generator[pa.RecordBatch]:
        """The records as Arrow batches of some megabytes."""
        for span in self._spans:
            yield from self._partition(span)

    def _partition(self, span: Span) -> Iterator[pa.RecordBatch]:
        while span.start < span.end and span.limit != 0:
            wanted = (span.start, span.end)
            row, files = queries.read_plan(
                self._catalog, self._topic, span.partition, wanted, _PAGE_FILES
            )
            if span.start < row.log_start:
                if not span.from_log_start:
                    raise OffsetOutOfRangeError(
                        self._topic.name, span.partition, span.start, row.log_start, row.log_end
                    )
                span = replace(span, start=row.log_start)
                continue
            try:
                for table in self._tables(files, span):
                    for batch in table.to_batches():
                        yield as_shown(batch, span.partition, self.schema)
                    span = _advanced(span, table)
                    if span.limit == 0:
                        return
            except BrokenFileError as error:
                if queries.is_live(self._catalog, error.name):
                    raise
                continue
            if len(files) < _PAGE_FILES:
                return
            span = replace(span, start=files[-1].last_offset + 1)

    def _tables(self, files: Sequence[LogFile], span: Span) -> Iterator[pa.Table]:
        """The span's rows, a row group at a time."""
        reads = self._reads(files, span)
        if span.limit is None:
            yield from read_ahead(reads)
            return
        left = span.limit
        for read in reads:
            table = read().slice(0, left)
            yield table
            left -= table.num_rows
            if left == 0:
                return

    def _reads(self, files: Sequence[LogFile], span: Span) -> Iterator[_Read]:
        """The reads to do, in order. A file that cannot be opened is one that raises, in its turn."""
        stored = [name for name in self.columns if name not in ("partition", "offset")]
        for file in files:
            try:
                reader = FileReader(self._root, file)
            except LastwordError as error:
                yield partial(_raise, error)
                return
            for row_group in reader.row_groups(span.start, span.end):
                yield partial(_read_within, reader, row_group, stored, span)


def first_offset_since(
    catalog: Catalog, root: DataRoot, topic: TopicRow, number: int, timestamp_ms: int
) -> int | None:
    """The first offset whose record is as young as that; None if there is none."""
    row, _ = queries.read_plan(catalog, topic, number, (0, 0))
    start = row.log_start
    while True:
        file = queries.first_file_since(catalog, topic, number, start, timestamp_ms)
        if file is None:
            return None
        first = max(start, file.base_offset)
        span = Span(number, first, file.last_offset + 1, from_log_start=True)
        for batch in Reader(catalog, root, topic, [span], ["offset", "timestamp"]).batches():
            stamps = batch.column("timestamp").cast(pa.int64()).to_numpy()
            young = np.flatnonzero(stamps >= timestamp_ms)
            if young.size:
                return int(batch.column("offset")[int(young[0])].as_py())
        start = file.last_offset + 1


def _read_within(reader: FileReader, row_group: int, stored: Sequence[str], span: Span) -> pa.Table:
    """The row group, cut to the offsets of the span."""
    table = reader.read(row_group, stored)
    offsets = table["offset"].to_numpy()
    first, last = np.searchsorted(offsets, [span.start, span.end])
    return table.slice(first, last - first)


def _raise(error: LastwordError) -> pa.Table:
    raise error


def read_ahead(reads: Iterator[_Read]) -> Iterator[pa.Table]:
    """Do the reads on other threads, a few ahead, and yield what they read in order."""
    first = list(islice(reads, 2))
    if len(first) < 2:
        yield from (read() for read in first)
        return
    with ThreadPoolExecutor(THREADS) as pool:
        ahead = deque(pool.submit(read) for read in first)
        try:
            for read in reads:
                if len(ahead) > THREADS:
                    yield ahead.popleft().result()
                ahead.append(pool.submit(read))
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def _advanced(span: Span, table: pa.Table) -> Span:
    if table.num_rows == 0:
        return span
    limit = None if span.limit is None else span.limit - table.num_rows
    last = table["offset"][-1].as_py()
    return replace(span, start=last + 1, limit=limit, from_log_start=False)


def as_shown(batch: pa.RecordBatch, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns that were asked for, its partition among them."""
    numbers = pa.array(np.full(batch.num_rows, partition, np.int32))
    arrays = [numbers if name == "partition" else batch.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def shown_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of these columns."""
    return pa.schema([COLUMNS.field(name) for name in columns])


def known_columns(columns: Sequence[str] | None) -> list[str]:
    """The columns asked for, or all; InvalidArgumentError if one is none of ours."""
    if columns is None:
        return list(COLUMNS.names)
    if not columns:
        raise InvalidArgumentError(f"name a column: {', '.join(COLUMNS.names)}")
    for name in columns:
        if name not in COLUMNS.names:
            raise InvalidArgumentError(f"no column {name!r}{did_you_mean(name, COLUMNS.names)}")
    return list(columns)
