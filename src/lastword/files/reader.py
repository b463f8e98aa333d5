"""Read one file of the log: its row groups, or single rows by the index of its keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lastword.address import redacted
from lastword.errors import MISSING, BrokenFileError, StorageError
from lastword.files.key_index import METADATA_KEY, KeyIndex
from lastword.files.parquet import MAGIC, footer_of
from lastword.files.root import DataRoot
from lastword.model import LogFile

_CACHED_ROWS = 4_096
_LOOKED_UP_ROWS = 512


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
            footer = footer_of(self._source)
            if crc32(footer) != file.facts.footer_crc:
                raise self._broken("is corrupt: its footer does not have the catalog's checksum")
            # Only a footer that is known to be good is parsed: a bad one can end the process.
            self._footer = pq.read_metadata(pa.BufferReader(MAGIC + footer))

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
            return self.key_index.rows(self._source, key_hash)

    def indexed(self) -> NDArray[np.uint64]:
        """The whole key index, verified."""
        with self._checked():
            blocks = list(self.key_index.all_entries(self._source))
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
        except (OSError, ValueError, pa.ArrowException) as error:
            problem = (str(error).splitlines() or [type(error).__name__])[0]
            is_decoding = getattr(error, "errno", None) is None and "AWS Error" not in problem
            if is_decoding:
                raise self._broken(f"is corrupt: {problem}") from error
            if self._root.size(self.file.facts.path) is None:  # which S3 says in many ways
                raise self._broken(MISSING) from None
            raise StorageError(self._shown, redacted(problem)) from error
