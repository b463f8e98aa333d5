"""What a pass covers of one partition, and the rule for one record: does it go, and why?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lastword.log.scan import Bools, Longs, Scanned, Section
from lastword.passes import BELOW_LOG_START, NULL_KEY, OBSOLETE, TOMBSTONE, Horizon


@dataclass(frozen=True)
class Covered(Section):
    """A section with what decides which of its tombstones may go."""

    horizons: tuple[Horizon, ...]
    new_horizon: Horizon  # of what this pass covers first; its id is 0
    now_ms: int
    held_from: int | None = None

    def reasons(self, rows: Scanned) -> dict[str, Bools]:
        """The rows that go, by reason; at most one each."""
        obsolete = rows.superseded_by >= 0
        may_go = rows.is_tombstone & self._may_go(rows.offsets)
        return {
            OBSOLETE: obsolete,
            TOMBSTONE: may_go & rows.is_mine & ~obsolete,
            NULL_KEY: rows.is_null_key & rows.is_mine,
            BELOW_LOG_START: rows.is_unreadable & rows.is_mine & ~obsolete & ~rows.is_null_key,
        }

    def horizons_of(self, offsets: Longs) -> list[Horizon]:
        """The horizons of what lies between these offsets, that of this pass last."""
        first, last = int(offsets[0]), int(offsets[-1])
        known = (*self.horizons, self.new_horizon)
        return [h for h in known if h.start <= last and first < h.end]

    def _may_go(self, offsets: Longs) -> Bools:
        """Where tombstones are past their horizon, and every consumer group has read them."""
        may_go = np.zeros(len(offsets), np.bool_)
        for horizon in reversed(self.horizons_of(offsets)):  # the first pass decides
            first, end = np.searchsorted(offsets, [horizon.start, horizon.end])
            may_go[first:end] = horizon.at_ms <= self.now_ms
        may_go &= (offsets < self.dirty_from) & (offsets >= self.log_start)
        if self.held_from is not None:
            may_go &= offsets < self.held_from
        return may_go
