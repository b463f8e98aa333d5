"""Staging: write records that come in pieces into a file per partition, in bounded memory.

For tasks, which do not know the catalog: what they stage, the driver commits. Records keep the order
in which they came; those with a column `offset`, which are mirrored, keep their offsets too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lastword.clock import Clock
from lastword.errors import CatalogError, LastwordError, StorageError
from lastword.files.parquet import ROW_GROUP_BYTES, FileWriter, new_file
from lastword.files.root import DataRoot
from lastword.log.batch import Batch
from lastword.model import StagedFile, TopicRow

_BUFFER_BYTES = 4 * ROW_GROUP_BYTES


@dataclass
class _Partition:
    """Where the records of one partition gather, and the file that they go to."""

    topic: TopicRow
    number: int
    gathered: list[pa.Table] = field(default_factory=list)
    bytes: int = 0
    writer: FileWriter | None = None
    base_offset: int | None = None  # of that file, if its records have offsets already
    has_strays: bool = False
    open: ExitStack = field(default_factory=ExitStack)


class Staging:
    """Staged files that grow. Used as a context manager: if the block fails, nothing is left."""

    def __init__(self, root: DataRoot, clock: Clock) -> None:
        self._root, self._clock = root, clock
        self._partitions: dict[tuple[int, int], _Partition] = {}
        self._gathered_bytes = 0
        self._paths: list[str] = []
        self._staged: list[StagedFile] = []

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            return
        for partition in self._partitions.values():
            with suppress(Exception):  # the first error is the one that counts
                partition.open.close()
        discard(self._root, self._paths)

    def add(self, batch: Batch) -> None:
        """Take records that were checked, each with its partition."""
        topic = batch.topic
        for number, rows in _by_partition(batch.records):
            its = self._partitions.setdefault((topic.id, number), _Partition(topic, number))
            its.has_strays |= batch.has_strays
            its.gathered.append(rows)
            its.bytes += rows.nbytes
            self._gathered_bytes += rows.nbytes
            if its.bytes >= ROW_GROUP_BYTES:
                self._write(its)
        while self._gathered_bytes > _BUFFER_BYTES:
            self._write(max(self._partitions.values(), key=lambda p: p.bytes))

    def finish(self) -> list[StagedFile]:
        """All that was added, durable; the files of a partition in the order of their records."""
        for partition in self._partitions.values():
            self._write(partition)
            self._close(partition)
        return self._staged

    def _write(self, partition: _Partition) -> None:
        """Write what has gathered as a row group; the file ends where a segment would."""
        if not partition.gathered:
            return
        if partition.writer is None:
            path = self._root.new_path(partition.topic.name, partition.number, self._clock())
            codec = partition.topic.config.compression_type
            self._paths.append(path)
            partition.writer = partition.open.enter_context(new_file(self._root, path, codec))
        partition.writer.add(self._with_deltas(partition, pa.concat_tables(partition.gathered)))
        self._gathered_bytes -= partition.bytes
        partition.gathered, partition.bytes = [], 0
        if partition.writer.bytes >= partition.topic.config.segment_bytes:
            self._close(partition)

    @staticmethod
    def _with_deltas(partition: _Partition, rows: pa.Table) -> pa.Table:
        if "offset" not in rows.column_names:
            return rows
        if partition.base_offset is None:
            partition.base_offset = rows["offset"][0].as_py()
        deltas = pc.subtract(rows["offset"], partition.base_offset)
        return rows.append_column("offset_delta", deltas)

    def _close(self, partition: _Partition) -> None:
        if partition.writer is not None:
            partition.open.close()
            self._staged.append(
                StagedFile(
                    partition.topic.id,
                    partition.number,
                    partition.writer.facts,
                    partition.has_strays,
                    partition.base_offset,
                )
            )
            partition.writer = partition.base_offset = None


@contextmanager
def discarded_if_refused(root: DataRoot, staged: Sequence[StagedFile]) -> Iterator[None]:
    """Around a commit of staged files: those that it refuses are deleted, if that is certain."""
    try:
        yield
    except CatalogError:
        raise  # whether it was committed is not known: the files stay, `gc` finds them if not
    except LastwordError:
        discard(root, [s.facts.path for s in staged])
        raise


def discard(root: DataRoot, paths: Sequence[str]) -> None:
    """Delete staged files that will not be committed; `gc` finds those that cannot be."""
    with suppress(StorageError):
        root.delete(paths)


def _by_partition(records: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The records of each partition, in order."""
    numbers = records["partition"].to_numpy()
    if not len(numbers):
        return
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), records
        return
    order = np.argsort(numbers, kind="stable")
    found, firsts = np.unique(numbers[order], return_index=True)
    for number, rows in zip(found, np.split(order, firsts[1:]), strict=True):
        yield int(number), records.take(pa.array(rows))
