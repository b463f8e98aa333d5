"""One file of the log: immutable Parquet, rows in offset order.

`offset_delta` counts from the file's base offset, which only the catalog knows: offsets are given
out by the commit, after the file was written. `tombstone` tells a deletion without touching
`value`. Pages carry checksums, which are verified whenever they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lastword.config import Compression
from lastword.errors import BrokenFileError
from lastword.files.root import DataRoot
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
ROW_GROUP_ROWS = 1 << 17


def write_file(root: DataRoot, path: str, records: pa.Table, codec: Compression) -> FileFacts:
    """Write records (timestamp, key, value, headers, in offset order) as a new, durable file.

    Deltas are 0..n-1 unless the table brings `offset_delta` itself.
    """
    table = _as_stored(records)
    with root.create(path) as sink:
        pq.write_table(
            table,
            sink,
            row_group_size=_row_group_rows(table),
            compression="none" if codec is Compression.UNCOMPRESSED else codec.value,
            use_dictionary=["key"],
            write_statistics=["offset_delta", "timestamp"],
            write_page_checksum=True,
            store_schema=False,
        )
        size = sink.tell()
    return FileFacts(
        path=path,
        records=table.num_rows,
        last_delta=table["offset_delta"][-1].as_py(),
        bytes=size,
        tombstones=pc.sum(table["tombstone"]).as_py(),
        null_keys=table["key"].null_count,
        first_ms=table["timestamp"][0].value,
        max_ms=pc.max(table["timestamp"]).value,
    )


class FileReader:
    """One file of the log, open for reading; BrokenFileError if it is not what the catalog says.

    Row groups may be read by several threads at once. The file is closed with the last reference.
    """

    def __init__(self, root: DataRoot, file: LogFile) -> None:
        self.file = file
        self._shown = root.full(file.facts.path)
        with self._checked():
            self._source = root.open(file.facts.path)
            if self._source.size() != file.facts.bytes:
                raise self._broken(
                    f"has {self._source.size()} bytes, the catalog says {file.facts.bytes}"
                )
            parquet = pq.ParquetFile(self._source)
            self._footer = parquet.metadata
            if not parquet.schema_arrow.equals(SCHEMA):
                raise self._broken("does not have the columns of a lastword file")
            if self._footer.num_rows != file.facts.records:
                raise self._broken(
                    f"has {self._footer.num_rows} records, the catalog says {file.facts.records}"
                )

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
            parquet = pq.ParquetFile(
                self._source, metadata=self._footer, page_checksum_verification=True
            )
            table = parquet.read_row_group(row_group, columns=["offset_delta", *columns])
        offsets = pc.add(table["offset_delta"], self.file.base_offset)
        return table.set_column(0, pa.field("offset", pa.int64(), nullable=False), offsets)

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
            raise self._broken("is missing") from None
        except (OSError, pa.ArrowException) as error:
            raise self._broken(f"is corrupt: {str(error).splitlines()[0]}") from error


def _as_stored(records: pa.Table) -> pa.Table:
    """The table with exactly the columns of a file, tombstones marked."""
    n = records.num_rows
    names = records.column_names
    columns = {
        "offset_delta": records["offset_delta"]
        if "offset_delta" in names
        else pa.array(np.arange(n)),
        "tombstone": pc.and_not(pc.is_null(records["value"]), pc.is_null(records["key"])),
        **{name: records[name] for name in ("timestamp", "key", "value", "headers")},
    }
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _row_group_rows(table: pa.Table) -> int:
    average: int = max(1, table.nbytes // max(1, table.num_rows))
    return min(ROW_GROUP_ROWS, max(1, ROW_GROUP_BYTES // average))
