"""A backlog: what has not been read yet of a partition, counted in live records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lastword.files.reader import FileReader
from lastword.files.root import DataRoot
from lastword.log.scan import Longs
from lastword.model import LogFile


@dataclass(frozen=True)
class Backlog:
    """Offsets [start, end) of a partition, which all lie in these files."""

    where: tuple[str, int]
    start: int
    end: int
    files: Sequence[LogFile]
    root: DataRoot

    @cached_property
    def counts(self) -> list[int]:
        """How many live records of each file are in it."""
        return [self._count(file) for file in self.files]

    @property
    def records(self) -> int:
        return sum(self.counts)

    def end_of(self, count: int) -> int:
        """The offset before which the first so many records lie; the next one's, if there is one."""
        for file, here in zip(self.files, self.counts, strict=True):
            if count < here:
                first = max(self.start, file.base_offset)
                return first + count if file.is_dense else int(self._offsets(file)[count])
            count -= here
        return self.end

    def _count(self, file: LogFile) -> int:
        first, last = max(self.start, file.base_offset), min(self.end, file.last_offset + 1)
        if (first, last) == (file.base_offset, file.last_offset + 1):
            return file.facts.records
        return max(0, last - first) if file.is_dense else len(self._offsets(file))

    def _offsets(self, file: LogFile) -> Longs:
        """The offsets of its records that are in the backlog, where some are missing."""
        reader = FileReader(self.root, file)
        groups = reader.row_groups(self.start, self.end)
        found = [reader.read(i, [])["offset"].to_numpy() for i in groups]
        offsets = np.concatenate(found) if found else np.empty(0, np.int64)
        first, stop = np.searchsorted(offsets, [self.start, self.end])
        return offsets[first:stop]
