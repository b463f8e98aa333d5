"""Append: stage a file per partition, then commit them all at once (the story: catalog.commits)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lastword.catalog import commits
from lastword.catalog.engine import Catalog
from lastword.errors import CatalogError, InvalidRecordError, LastwordError
from lastword.files.parquet import write_file
from lastword.files.root import DataRoot
from lastword.model import AppendResult, StagedFile, TopicRow, Writer

_RECORD_COLUMNS = ["timestamp", "key", "value", "headers"]


@dataclass(frozen=True)
class Batch:
    """Records for one topic, checked, each with its partition."""

    topic: TopicRow
    records: pa.Table


@dataclass(frozen=True)
class _Planned:
    topic: TopicRow
    partition: int
    records: pa.Table


def append(
    catalog: Catalog,
    root: DataRoot,
    batches: Sequence[Batch],
    now_ms: int,
    by: Writer | None = None,
) -> AppendResult:
    """Append to all these topics, or to none. Durable when it returns."""
    if by is not None:
        if by.version < 0 or not by.id:
            raise InvalidRecordError(f"a writer has an id and a version from 0 on, not {by[:2]}")
        if (done := commits.appended_before(catalog, by)) is not None:
            return done
    planned = [file for batch in batches for file in _plan(batch)]
    if not planned and by is None:
        return AppendResult(())
    staged = stage(root, planned, now_ms)
    try:
        result = commits.commit_append(catalog, [b.topic for b in batches], staged, now_ms, by)
    except CatalogError:
        raise  # whether it was committed is not known: the files stay, `gc` finds them if not
    except LastwordError:
        discard(root, staged)
        raise
    if result.is_repeat:
        discard(root, staged)
    return result


def stage(root: DataRoot, planned: Sequence[_Planned], now_ms: int) -> list[StagedFile]:
    """Write the files, some at a time; on failure, none is left."""
    paths = [root.new_path(p.topic.name, p.partition, now_ms) for p in planned]

    def write(path: str, p: _Planned) -> StagedFile:
        facts = write_file(root, path, p.records, p.topic.config.compression_type)
        return StagedFile(p.topic.id, p.partition, facts)

    try:
        if len(planned) == 1:
            return [write(paths[0], planned[0])]
        with ThreadPoolExecutor(min(len(planned) or 1, os.cpu_count() or 1)) as pool:
            return list(pool.map(write, paths, planned))
    except BaseException:
        root.delete(paths)
        raise


def discard(root: DataRoot, staged: Sequence[StagedFile]) -> None:
    """Delete staged files that will not be committed."""
    root.delete([s.facts.path for s in staged])


def _plan(batch: Batch) -> Iterator[_Planned]:
    """The files to write: one per partition, or more where one would outgrow a segment."""
    for number, records in _by_partition(batch.records):
        rows = _rows_per_file(records, batch.topic.config.segment_bytes)
        for start in range(0, records.num_rows, rows):
            yield _Planned(batch.topic, number, records.slice(start, rows))


def _by_partition(records: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    numbers = records["partition"].to_numpy()
    columns = records.select(_RECORD_COLUMNS)
    present = np.unique(numbers)
    for number in present:
        mine = columns if len(present) == 1 else columns.filter(pa.array(numbers == number))
        yield int(number), mine


def _rows_per_file(records: pa.Table, segment_bytes: int) -> int:
    files: int = max(1, -(-records.nbytes // segment_bytes))
    return max(1, -(-int(records.num_rows) // files))
