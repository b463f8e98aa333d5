"""What a task reads, in an executor: it has paths and the data root, and no catalog."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from lastword.errors import BrokenFileError, ConflictError
from lastword.files.root import DataRoot
from lastword.log.alive import alive
from lastword.log.pieces import Piece, read
from lastword.log.scan import Bools, Section
from lastword.spark.rows import shown, stored_columns


@dataclass(frozen=True)
class Latest:
    """That only the last record of each key is read, and what must be scanned to know it."""

    section: Section
    buffer_bytes: int  # for maps of keys; the tasks of a machine share it

    def alive(self, root: DataRoot, pieces: tuple[Piece, ...]) -> dict[str, Bools]:
        """Which rows of these pieces' files are read."""
        map_bytes = self.buffer_bytes // (os.cpu_count() or 1)
        paths = {piece.file.facts.path for piece in pieces}
        return alive(self.section, root, map_bytes, paths)


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """Some pieces of one partition."""

    root: DataRoot
    pieces: tuple[Piece, ...]
    timestamp_type: int
    latest: Latest | None = None

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The records as Spark's rows, in offset order."""
        try:
            yield from self._batches(schema)
        except BrokenFileError as error:
            if not error.is_missing:
                raise
            raise ConflictError(
                f"{error.path} is gone; if this query was planned more than file.delete.delay.ms ago, "
                "the cleaner has replaced it: load the DataFrame again, or restart the stream"
            ) from None

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        living = self.latest.alive(self.root, self.pieces) if self.latest else {}
        columns = stored_columns(schema)
        for piece in self.pieces:
            keep = living.get(piece.file.facts.path)
            for batch in read(self.root, piece, columns, keep):
                yield shown(batch, piece, self.timestamp_type, schema)
