"""One file of the log: immutable Parquet, rows in offset order.

`offset_delta` counts from the file's base offset, which only the catalog knows: offsets are given
out by the commit, after the file was written. `tombstone` tells a deletion without touching
`value`. Pages carry checksums, which are verified whenever they are read; the catalog has the
footer's. Before the footer lies an index of the keys (`key_index`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lastword.config import Compression
from lastword.files.key_index import METADATA_KEY, KeyIndexWriter
from lastword.files.root import DataRoot, translated
from lastword.model import FileFacts

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

MAGIC = b"PAR1"
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
        footer_crc = crc32(footer_of(root.open(path)))
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


def tombstones_in(records: pa.Table) -> pa.ChunkedArray:
    """Which records delete their key: those with a key and without a value."""
    return pc.and_not(pc.is_null(records["value"]), pc.is_null(records["key"]))


def footer_of(source: pa.NativeFile) -> bytes:
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
