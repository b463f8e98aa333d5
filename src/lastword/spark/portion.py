"""A batch's portion of what has not been read yet, counted in live records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lastword.config import LONG_MAX
from lastword.files.parquet import FileReader
from lastword.files.root import DataRoot
from lastword.log.scan import Longs
from lastword.model import LogFile
from lastword.spark.queries import TopicPartition


@dataclass(frozen=True)
class Backlog:
    """Offsets [start, end) of a partition, which all lie in these files."""

    where: TopicPartition
    start: int
    end: int
    files: Sequence[LogFile]
    root: DataRoot

    @property
    def records(self) -> int:
        """How many live records that is."""
        return sum(self._within(file) for file in self.files)

    def end_of(self, count: int) -> int:
        """The offset before which the first so many records lie; the next one's, if there is one."""
        for file in self.files:
            here = self._within(file)
            if count < here:
                if _is_dense(file):
                    return max(self.start, file.base_offset) + count
                offsets = _offsets(self.root, file)
                return int(offsets[offsets >= self.start][count])
            count -= here
        return self.end

    def _within(self, file: LogFile) -> int:
        """How many of the file's records are in the backlog."""
        first, last = max(self.start, file.base_offset), min(self.end, file.last_offset + 1)
        if (first, last) == (file.base_offset, file.last_offset + 1):
            return file.facts.records
        if _is_dense(file):
            return max(0, last - first)
        offsets = _offsets(self.root, file)
        return int(np.count_nonzero((offsets >= first) & (offsets < last)))


def portion(backlogs: Sequence[Backlog], most: int) -> dict[TopicPartition, int]:
    """Where a batch of about `most` records ends, each partition in proportion to what it has."""
    sizes = {backlog.where: backlog.records for backlog in backlogs}
    total = sum(sizes.values())
    if total <= most:
        return {backlog.where: backlog.end for backlog in backlogs}
    return {b.where: b.end_of(max(1, most * sizes[b.where] // total)) for b in backlogs}


def _is_dense(file: LogFile) -> bool:
    """Whether no offset is missing in it: it was never cleaned."""
    return file.facts.records == file.last_offset - file.base_offset + 1


def _offsets(root: DataRoot, file: LogFile) -> Longs:
    reader = FileReader(root, file)
    groups = reader.row_groups(0, LONG_MAX)
    return np.concatenate([reader.read(i, [])["offset"].to_numpy() for i in groups])
