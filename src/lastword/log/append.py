"""Append: stage a file per partition, then commit them all at once (the story: catalog.commits)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lastword.catalog.commits import commit_append
from lastword.catalog.engine import Catalog
from lastword.files.parquet import ROW_GROUP_BYTES, rows_of, write_file
from lastword.files.root import DataRoot
from lastword.log.batch import Batch
from lastword.log.staging import discard, discarded_if_refused
from lastword.model import AppendResult, StagedFile, TopicRow, Writer


@dataclass(frozen=True)
class _Planned:
    """A file to write: those of the batch's records in rows [start, stop) that are its partition's."""

    batch: Batch
    partition: int
    start: int
    stop: int
    share: float  # of the batch's records, that the partition has

    def pieces(self) -> Iterator[pa.Table]:
        """The records, some megabytes at a time."""
        records = self.batch.records
        window = int(rows_of(ROW_GROUP_BYTES, records) / self.share)
        for start in range(self.start, self.stop, window):
            piece = records.slice(start, min(window, self.stop - start))
            if self.share < 1:
                piece = piece.filter(pc.equal(piece["partition"], self.partition))
            if piece.num_rows:
                yield piece


def append(
    catalog: Catalog,
    root: DataRoot,
    batches: Sequence[Batch],
    now_ms: int,
    by: Writer | None = None,
) -> AppendResult:
    """Append to all these topics, or to none. Durable when it returns."""
    planned = [file for batch in batches for file in _plan(batch)]
    if not planned and by is None:
        return AppendResult(())
    staged = stage(root, planned, now_ms)
    return commit_staged(catalog, root, [b.topic for b in batches], staged, now_ms, by)


def commit_staged(
    catalog: Catalog,
    root: DataRoot,
    topics: Sequence[TopicRow],
    staged: Sequence[StagedFile],
    now_ms: int,
    by: Writer | None = None,
) -> AppendResult:
    """Commit staged files; those that were not taken are deleted, if that is certain."""
    with discarded_if_refused(root, staged):
        result = commit_append(catalog, topics, staged, now_ms, by)
    if result.is_repeat:
        discard(root, [s.facts.path for s in staged])
    return result


def stage(root: DataRoot, planned: Sequence[_Planned], now_ms: int) -> list[StagedFile]:
    """Write the files, a few at a time; on failure, none is left."""
    paths = [root.new_path(p.batch.topic.name, p.partition, now_ms) for p in planned]

    def write(path: str, p: _Planned) -> StagedFile:
        topic = p.batch.topic
        facts = write_file(root, path, p.pieces(), topic.config.compression_type)
        return StagedFile(topic.id, p.partition, facts, p.batch.has_strays)

    try:
        if len(planned) == 1:
            return [write(paths[0], planned[0])]
        with ThreadPoolExecutor(min(len(planned) or 1, os.cpu_count() or 1)) as pool:
            return list(pool.map(write, paths, planned))
    except BaseException:
        discard(root, paths)
        raise


def _plan(batch: Batch) -> Iterator[_Planned]:
    """The files to write: one per partition, or more where one would outgrow a segment."""
    numbers = batch.records["partition"].to_numpy().astype(np.uint16)  # which sorts fastest
    counts = np.bincount(numbers)
    by_partition = np.split(np.argsort(numbers, kind="stable"), np.cumsum(counts)[:-1])
    for number in np.flatnonzero(counts):
        mine = by_partition[number]
        share = len(mine) / len(numbers)
        files = max(1, math.ceil(batch.records.nbytes * share / batch.topic.config.segment_bytes))
        for rows in np.array_split(mine, min(files, len(mine))):
            yield _Planned(batch, int(number), int(rows[0]), int(rows[-1]) + 1, share)
