"""A log in thirty plain lines: what Hypothesis compares the real one with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Row = tuple[int, bytes | None, bytes | None, int]  # offset, key, value, timestamp


@dataclass
class ReferenceLog:
    """One partition: segments of appends of rows; the last segment is the active one."""

    segments: list[list[list[Row]]] = field(default_factory=lambda: [[]])
    log_start: int = 0
    log_end: int = 0

    def append(self, records: Sequence[tuple[bytes | None, bytes | None, int]]) -> None:
        rows = [(self.log_end + i, *record) for i, record in enumerate(records)]
        if rows:
            self.segments[-1].append(rows)
            self.log_end += len(rows)

    def roll(self) -> None:
        if self.segments[-1]:
            self.segments.append([])

    def raise_log_start(self, offset: int) -> None:
        self.log_start = max(self.log_start, offset)
        for segment in self.segments:
            segment[:] = [rows for rows in segment if rows[-1][0] >= self.log_start]
        last = self.segments.pop()
        self.segments = [segment for segment in self.segments if segment] + [last]

    def expire(self, now_ms: int, retention_ms: int) -> None:
        while self.segments[0]:
            newest = max(row[3] for rows in self.segments[0] for row in rows)
            if now_ms - newest <= retention_ms:
                return
            self.raise_log_start(self.segments[0][-1][-1][0] + 1)

    def clean(self, first_dirty: int, end: int, may_go: Callable[[int], bool]) -> None:
        """Compact [log start, end), as Kafka defines it; `may_go` says it of a tombstone's offset."""
        covered = [row for row in self.read(0) if row[0] < end]
        last = {row[1]: row[0] for row in covered if row[0] >= first_dirty}

        def stays(row: Row) -> bool:
            offset, key, value, _ = row
            if offset >= end:
                return True
            if offset < self.log_start:
                return False
            is_expired = value is None and offset < first_dirty and may_go(offset)
            return key is not None and offset >= last.get(key, -1) and not is_expired

        for segment in self.segments:
            segment[:] = [kept for rows in segment if (kept := [r for r in rows if stays(r)])]
        active = self.segments.pop()
        self.segments = [segment for segment in self.segments if segment] + [active]

    def read(self, start: int) -> list[Row]:
        first = max(start, self.log_start)
        rows = (row for segment in self.segments for rows in segment for row in rows)
        return [row for row in rows if row[0] >= first]
