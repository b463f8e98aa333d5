"""One file of the log: immutable Parquet, rows in offset order.

`offset_delta` counts from the file's base offset, which only the catalog knows: offsets are given
out by the commit, after the file was written. `tombstone` tells a deletion without touching
`value`. Pages carry checksums, which are verified whenever they are read; the catalog has the
footer's. Before the footer lies an index of the keys (`key_index`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lastword.address import redacted
from lastword.config import Compression
from lastword.errors import MISSING, BrokenFileError, StorageError
from lastword.files.key_index import METADATA_KEY, KeyIndex, KeyIndexWriter
from lastword.files.root import DataRoot, translated
from lastword.model import FileFacts, LogFile

HEADERS = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
)
TIMESTAMP = pa.timestamp("ms", "UTC")

SCHEMA = pa.schema(
    [
        pa.field("offset_delta", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP, nullable=False),
        pa.field("tombstone", pa.bool_(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)

ROW_GROUP_BYTES = 16 << 20  # of records in memory: what a reader holds of a file at a time
ROW_GROUP_ROWS = 1 << 14  # a look-up decodes one

_CACHED_ROWS = 4_096
_LOOKED_UP_ROWS = 512
_MAGIC = b"PAR1"
_TAIL_BYTES = 64 << 10
_NO_RECORDS = FileFacts(
    path="",
    records=0,
    last_delta=-1,
    bytes=0,
    tombstones=0,
    null_keys=0,
    first_ms=-1,
    max_ms=-1,
    footer_crc=0,
)


def write_file(
    root: DataRoot, path: str, pieces: Iterable[pa.Table], codec: Compression
) -> FileFacts:
    """Write records (timestamp, key, value, headers, in offset order) as a new, durable file."""
    with new_file(root, path, codec) as writer:
        for piece in pieces:
            writer.add(piece)
    return writer.facts


@contextmanager
def new_file(root: DataRoot, path: str, codec: Compression) -> Iterator[FileWriter]:
    """A file to write a piece at a time; it is durable, and its facts are known, when the block ends."""
    with root.create(path) as sink:
        writer = FileWriter(sink, codec)
        with writer.parquet:
            yield writer
            writer.add_key_index()
        size = sink.tell()
    with translated(root.full(path)):
        footer_crc = crc32(_footer(root.open(path)))
    writer.facts = replace(writer.facts, path=path, bytes=size, footer_crc=footer_crc)


class FileWriter:
    """A file that is being written, and what is known of it so far."""

    def __init__(self, sink: pa.NativeFile, codec: Compression) -> None:
        self._sink, self.facts, self._key_index = sink, _NO_RECORDS, KeyIndexWriter()
        self.parquet = pq.ParquetWriter(
            sink,
            SCHEMA,
            compression="none" if codec is Compression.UNCOMPRESSED else codec.value,
            use_dictionary=["key"],
            write_statistics=["offset_delta", "timestamp"],
            write_page_checksum=True,
            store_schema=False,
        )

    @property
    def bytes(self) -> int:
        """How large it is now."""
        return int(self._sink.tell())

    def add(self, piece: pa.Table) -> None:
        """Write records as a row group, or several if they are many.

        Deltas are 0..n-1 unless the pieces bring `offset_delta` themselves.
        """
        for rows in _row_groups(piece):
            table = _as_stored(rows, first_delta=self.facts.last_delta + 1)
            self.parquet.write_table(table, row_group_size=table.num_rows)
            self._key_index.add(table["key"])
            self.facts = _with_rows(self.facts, table)

    def add_key_index(self) -> None:
        """Write the index, when all records are there."""
        self.parquet.add_key_value_metadata({METADATA_KEY: self._key_index.write(self._sink)})


def rows_of(size: int, table: pa.Table) -> int:
    """How many rows of this table make about that many bytes; at least one."""
    average = max(1, int(table.nbytes) // max(1, int(table.num_rows)))
    return min(ROW_GROUP_ROWS, max(1, size // average))


class FileReader:
    """One file of the log, open for reading; BrokenFileError if it is not what the catalog says.

    Row groups may be read by several threads at once. The file is closed with the last reference.
    """

    def __init__(self, root: DataRoot, file: LogFile) -> None:
        self.file, self._root = file, root
        self._shown = root.full(file.facts.path)
        self._open: pa.NativeFile | None = None
        with self._checked():
            if self._source.size() != file.facts.bytes:
                raise self._broken(
                    f"has {self._source.size()} bytes, the catalog says {file.facts.bytes}"
                )
            footer = _footer(self._source)
            if crc32(footer) != file.facts.footer_crc:
                raise self._broken("is corrupt: its footer does not have the catalog's checksum")
            # Only a footer that is known to be good is parsed: a bad one can end the process.
            self._footer = pq.read_metadata(pa.BufferReader(_MAGIC + footer))

    @property
    def _source(self) -> pa.NativeFile:
        if self._open is None:
            self._open = self._root.open(self.file.facts.path)
        return self._open

    def rest(self) -> None:
        """Let go of the open file; what is known of it stays, and it is opened again when needed."""
        if self._open is not None and self._root.is_local:
            self._open.close()
            self._open = None

    def row_groups(self, start: int, end: int) -> list[int]:
        """The row groups that may hold offsets in [start, end)."""
        wanted = []
        for i in range(self._footer.num_row_groups):
            deltas = self._footer.row_group(i).column(0).statistics
            first = self.file.base_offset + deltas.min
            last = self.file.base_offset + deltas.max
            if last >= start and first < end:
                wanted.append(i)
        return wanted

    def read(self, row_group: int, columns: Sequence[str]) -> pa.Table:
        """One row group: `offset`, and the columns asked for, as stored."""
        with self._checked():
            table = self._parquet().read_row_group(row_group, columns=["offset_delta", *columns])
        return self.with_offsets(table)

    def batches(
        self, row_group: int, columns: Sequence[str] | None = None, rows: int = _CACHED_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """One row group as stored, `offset_delta` and these columns or all, so many rows at a time.

        Some thousand rows stay in cache.
        """
        wanted = None if columns is None else ["offset_delta", *columns]
        with self._checked():
            yield from self._parquet().iter_batches(
                rows, row_groups=[row_group], columns=wanted, use_threads=False
            )

    @cached_property
    def key_index(self) -> KeyIndex:
        """Which rows may hold which key."""
        try:
            return KeyIndex.parsed(self._footer.metadata[METADATA_KEY.encode()])
        except (KeyError, TypeError, ValueError):
            raise self._broken("is corrupt: it has no key index") from None

    def rows_with(self, key_hash: int) -> list[int]:
        """The rows whose keys have this hash, in offset order."""
        with self._checked():
            try:
                return self.key_index.rows(self._source, key_hash)
            except ValueError as error:
                raise self._broken(f"is corrupt: {error}") from None

    def indexed(self) -> NDArray[np.uint64]:
        """The whole key index, verified."""
        with self._checked():
            try:
                blocks = list(self.key_index.all_entries(self._source))
            except ValueError as error:
                raise self._broken(f"is corrupt: {error}") from None
        return np.concatenate(blocks) if blocks else np.empty(0, np.uint64)

    def take(self, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """These rows, which are in order: `offset`, and the columns asked for."""
        found: list[pa.RecordBatch] = []
        left = deque(rows)
        if left and left[-1] >= self.file.facts.records:
            raise self._broken(f"is corrupt: its key index names row {left[-1]}")
        while left:
            row_group = int(np.searchsorted(self._first_rows, left[0], "right")) - 1
            row = int(self._first_rows[row_group])
            for batch in self.batches(row_group, columns, _LOOKED_UP_ROWS):
                here = []
                while left and left[0] < row + batch.num_rows:
                    here.append(left.popleft() - row)
                row += batch.num_rows
                if here:
                    found.append(batch.take(pa.array(here)))
                if not left:
                    break
        return self.with_offsets(pa.Table.from_batches(found))

    @cached_property
    def _first_rows(self) -> NDArray[np.int64]:
        """The number of each row group's first row."""
        counts = [self.rows(i) for i in range(self._footer.num_row_groups)]
        return np.cumsum([0, *counts])[:-1]

    def rows(self, row_group: int) -> int:
        """How many records the row group has."""
        return int(self._footer.row_group(row_group).num_rows)

    def stored_bytes(
        self, row_group: int, columns: Sequence[str] | None = None, *, uncompressed: bool = False
    ) -> int:
        """What reading these columns, or all, of the row group takes from storage."""
        group = self._footer.row_group(row_group)
        wanted = None if columns is None else {"offset_delta", *columns}
        chunks = (group.column(i) for i in range(group.num_columns))
        return sum(
            c.total_uncompressed_size if uncompressed else c.total_compressed_size
            for c in chunks
            if wanted is None or c.path_in_schema.partition(".")[0] in wanted
        )

    def with_offsets(self, table: pa.Table) -> pa.Table:
        """The table with `offset` in place of `offset_delta`, its first column."""
        offsets = pc.add(table["offset_delta"], self.file.base_offset)
        return table.set_column(0, pa.field("offset", pa.int64(), nullable=False), offsets)

    def _parquet(self) -> pq.ParquetFile:
        return pq.ParquetFile(self._source, metadata=self._footer, page_checksum_verification=True)

    def _broken(self, problem: str) -> BrokenFileError:
        file = self.file
        return BrokenFileError(
            self._shown, problem, file.facts.path, file.where, (file.base_offset, file.last_offset)
        )

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise self._broken(MISSING) from None
        except (OSError, pa.ArrowException) as error:
            problem = (str(error).splitlines() or [type(error).__name__])[0]
            is_decoding = getattr(error, "errno", None) is None and "AWS Error" not in problem
            if is_decoding:
                raise self._broken(f"is corrupt: {problem}") from error
            if self._root.size(self.file.facts.path) is None:  # which S3 says in many ways
                raise self._broken(MISSING) from None
            raise StorageError(self._shown, redacted(problem)) from error


def tombstones_in(records: pa.Table) -> pa.ChunkedArray:
    """Which records delete their key: those with a key and without a value."""
    return pc.and_not(pc.is_null(records["value"]), pc.is_null(records["key"]))


def _footer(source: pa.NativeFile) -> bytes:
    """The end of a Parquet file: what is where, its length, and the magic."""
    size = int(source.size())
    tail: bytes = source.read_at(min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > len(tail):
        tail = source.read_at(min(size, length), max(0, size - length))
    return tail[-length:]


def _row_groups(records: pa.Table) -> Iterator[pa.Table]:
    """The records in even runs of about a row group's bytes, however unequal they are."""
    count = records.num_rows
    if records.nbytes <= 1.25 * ROW_GROUP_BYTES and count <= ROW_GROUP_ROWS:
        yield records
        return
    ends = np.cumsum(_sizes(records))
    run = ends[-1] / np.ceil(ends[-1] / ROW_GROUP_BYTES) if ends[-1] else ROW_GROUP_BYTES
    start = 0
    while start < count:
        before = ends[start - 1] if start else 0
        fits = int(np.searchsorted(ends, before + run, side="right"))
        stop = min(max(fits, start + 1), start + ROW_GROUP_ROWS)
        yield records.slice(start, stop - start)
        start = stop


def _sizes(records: pa.Table) -> NDArray[np.int64]:
    """The bytes of every record: key, value and headers."""
    sizes = np.zeros(records.num_rows, np.int64)
    for name in ("key", "value"):
        sizes += _lengths(records[name])
    pairs = pc.list_flatten(records["headers"])
    if len(pairs):
        row = pc.list_parent_indices(records["headers"]).to_numpy()
        for part in ("key", "value"):
            np.add.at(sizes, row, _lengths(pc.struct_field(pairs, part)))
    return sizes


def _lengths(column: pa.ChunkedArray) -> NDArray[np.int64]:
    return np.asarray(pc.fill_null(pc.binary_length(column), 0).to_numpy(), np.int64)


def _as_stored(records: pa.Table, first_delta: int) -> pa.Table:
    """The table with exactly the columns of a file, tombstones marked."""
    deltas = (
        records["offset_delta"]
        if "offset_delta" in records.column_names
        else pa.array(np.arange(first_delta, first_delta + records.num_rows))
    )
    columns = {
        "offset_delta": deltas,
        "tombstone": tombstones_in(records),
        **{name: records[name] for name in ("timestamp", "key", "value", "headers")},
    }
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _with_rows(facts: FileFacts, table: pa.Table) -> FileFacts:
    """The facts of a file that has grown by these rows."""
    return replace(
        facts,
        records=facts.records + table.num_rows,
        last_delta=table["offset_delta"][-1].as_py(),
        tombstones=facts.tombstones + pc.sum(table["tombstone"]).as_py(),
        null_keys=facts.null_keys + table["key"].null_count,
        first_ms=facts.first_ms if facts.records else table["timestamp"][0].value,
        max_ms=max(facts.max_ms, pc.max(table["timestamp"]).value),
    )
