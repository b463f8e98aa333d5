"""Sweep: write the survivors of files that have dead records into new files.

First a pure decision. Neighbouring segments are joined while their survivors fit into
`segment.bytes`. Within a segment, files that have dead records are rewritten, and small files go
along with their neighbours; all others stay as they are. Then a task per file to write, streaming.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import pyarrow as pa

from lastword.cleaner.mark import FileMarks
from lastword.cleaner.throttle import Throttle
from lastword.config import LONG_MAX, Compression, TopicConfig
from lastword.errors import StorageError
from lastword.files.parquet import ROW_GROUP_BYTES, write_file
from lastword.files.reader import FileReader
from lastword.files.root import DataRoot
from lastword.model import FileFacts, LogFile

_MOST_READ = 4  # segments' worth of bytes go into one at the most: survivors are an estimate
_SMALL_SHARE = 16  # a file below this part of segment.bytes is merged with its neighbours


@dataclass(frozen=True)
class Rewrite:
    """Neighbouring files whose survivors become one new file."""

    segment_base: int
    inputs: tuple[LogFile, ...]


@dataclass(frozen=True)
class SweepPlan:
    """What becomes of the covered files; those not named stay as they are."""

    rewrites: tuple[Rewrite, ...] = ()
    emptied: tuple[LogFile, ...] = ()  # no survivor in them
    moved: Mapping[str, int] = field(default_factory=dict)  # path → base of the segment it joins

    @property
    def retired(self) -> list[LogFile]:
        """The files that go: rewritten, or without survivors."""
        return [f for rewrite in self.rewrites for f in rewrite.inputs] + list(self.emptied)


@dataclass(frozen=True)
class SweepTask:
    """The work of one task: a file to write."""

    topic: str
    partition: int
    segment_base: int
    inputs: tuple[tuple[LogFile, FileMarks | None], ...]
    root: DataRoot
    codec: Compression
    now_ms: int
    bytes_per_second: float

    @property
    def weight(self) -> int:
        return sum(file.facts.bytes for file, _ in self.inputs)


@dataclass(frozen=True)
class Swept:
    """A new file, and what the books need."""

    segment_base: int
    base_offset: int
    facts: FileFacts
    offset_sum: int
    bytes_read: int


def plan(
    files: Sequence[LogFile], marks: Mapping[str, FileMarks], config: TopicConfig
) -> SweepPlan:
    """Which files are rewritten together, which vanish, which join another segment."""
    rewrites: list[Rewrite] = []
    emptied: list[LogFile] = []
    moved: dict[str, int] = {}
    for segments in _joined(files, marks, config.segment_bytes):
        base = segments[0].segment_base
        for run in _runs([f for f in segments if _left(f, marks)], marks, config.segment_bytes):
            if len(run) > 1 or _has_dead(run[0], marks):
                rewrites.append(Rewrite(base, tuple(run)))
            elif run[0].segment_base != base:
                moved[run[0].facts.path] = base
        emptied += [f for f in segments if not _left(f, marks)]
    return SweepPlan(tuple(rewrites), tuple(emptied), moved)


def sweep(task: SweepTask) -> Swept:
    """Write one file."""
    throttle = Throttle(task.bytes_per_second)
    base_offset = task.inputs[0][0].base_offset
    survivors = _Survivors(task, base_offset, throttle)
    path = task.root.new_path(task.topic, task.partition, task.now_ms)
    try:
        facts = write_file(task.root, path, survivors, task.codec)
    except BaseException:
        with suppress(StorageError):  # else `gc` finds it
            task.root.delete([path])
        raise
    bytes_read = throttle.bytes
    throttle.used(facts.bytes)
    return Swept(task.segment_base, base_offset, facts, survivors.offset_sum, bytes_read)


class _Survivors:
    """The records to write, in tables of about a row group."""

    def __init__(self, task: SweepTask, base_offset: int, throttle: Throttle) -> None:
        self._task, self._base_offset, self._throttle = task, base_offset, throttle
        self.offset_sum = 0

    def __iter__(self) -> Iterator[pa.Table]:
        gathered: list[pa.RecordBatch] = []
        size = 0
        for batch in self._batches():
            gathered.append(batch)
            size += batch.nbytes
            if size >= ROW_GROUP_BYTES:
                yield pa.Table.from_batches(gathered)
                gathered, size = [], 0
        if gathered:
            yield pa.Table.from_batches(gathered)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for file, marks in self._task.inputs:
            reader = FileReader(self._task.root, file)
            shift = file.base_offset - self._base_offset
            dead = marks.dead if marks else np.zeros(file.facts.records, np.bool_)
            start = 0
            for i in reader.row_groups(0, LONG_MAX):
                stop = start + reader.rows(i)
                if not dead[start:stop].all():
                    yield from self._alive(reader, i, ~dead[start:stop], shift)
                    self._throttle.used(reader.stored_bytes(i))
                start = stop

    def _alive(
        self, reader: FileReader, row_group: int, alive: np.ndarray, shift: int
    ) -> Iterator[pa.RecordBatch]:
        row = 0
        for batch in reader.batches(row_group):
            keep = alive[row : row + batch.num_rows]
            row += batch.num_rows
            if not keep.any():
                continue
            kept = batch if keep.all() else batch.filter(pa.array(keep))
            deltas = kept.column("offset_delta").to_numpy() + shift
            self.offset_sum += int(deltas.sum()) + len(deltas) * self._base_offset
            yield kept.set_column(0, "offset_delta", pa.array(deltas))


def _joined(
    files: Sequence[LogFile], marks: Mapping[str, FileMarks], segment_bytes: int
) -> Iterator[list[LogFile]]:
    """The files of neighbouring segments that become one segment."""
    group: list[LogFile] = []
    size = read = 0
    for _, segment in groupby(files, key=lambda f: f.segment_base):
        its = list(segment)
        more, to_read = sum(_left_bytes(f, marks) for f in its), sum(f.facts.bytes for f in its)
        is_full = size + more > segment_bytes or read + to_read > _MOST_READ * segment_bytes
        if group and is_full:
            yield group
            group, size, read = [], 0, 0
        group += its
        size += more
        read += to_read
    if group:
        yield group


def _runs(
    files: Sequence[LogFile], marks: Mapping[str, FileMarks], segment_bytes: int
) -> Iterator[list[LogFile]]:
    """Neighbours that become one file: those with dead records and small ones; others stay alone."""
    run: list[LogFile] = []
    size = read = 0
    for file in files:
        more = _left_bytes(file, marks)
        joins = _has_dead(file, marks) or more * _SMALL_SHARE < segment_bytes
        to_read = read + file.facts.bytes
        is_full = size + more > segment_bytes or to_read > _MOST_READ * segment_bytes
        if run and (not joins or is_full):
            yield run
            run, size, read = [], 0, 0
        run.append(file)
        size += more
        read += file.facts.bytes
        if not joins:
            yield run
            run, size, read = [], 0, 0
    if run:
        yield run


def _has_dead(file: LogFile, marks: Mapping[str, FileMarks]) -> bool:
    """Whether there are dead records in it."""
    return _left(file, marks) < file.facts.records


def _left(file: LogFile, marks: Mapping[str, FileMarks]) -> int:
    found = marks.get(file.facts.path)
    return file.facts.records if found is None else found.left


def _left_bytes(file: LogFile, marks: Mapping[str, FileMarks]) -> int:
    return file.facts.bytes * _left(file, marks) // max(1, file.facts.records)
