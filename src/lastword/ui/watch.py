"""The overview of a store, kept fresh while somebody looks.

With many files it takes longer to make than a visitor should wait. So a page shows the last one and
says how old it is, and meanwhile a thread makes the next.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from lastword.cleaner.overview import Overview, overview
from lastword.errors import LastwordError
from lastword.foundation import Foundation

_FRESH_S = 2.0
_REST = 5  # times as long as it took, nothing is done
_OLD_S = 60.0  # nobody has looked for long: who looks now had better wait
_QUICK_S = 0.05  # what takes no longer is made for every visitor


@dataclass(frozen=True)
class _Seen:
    """An overview, when it was begun, and how long it took."""

    overview: Overview
    began_s: float
    took_s: float

    @property
    def rest_s(self) -> float:
        """How long it is fresh."""
        return max(_FRESH_S, _REST * self.took_s)

    @property
    def is_old(self) -> bool:
        """Whether nobody should be shown it."""
        return time.monotonic() - self.began_s > max(_OLD_S, 2 * self.rest_s)


class Watch:
    """Safe to use from several threads."""

    def __init__(self, base: Foundation) -> None:
        self._base = base
        self._seen: _Seen | None = None
        self._wanted_s = 0.0  # what was begun before is not good enough
        self._making = threading.Lock()

    def seen(self) -> Overview:
        """The overview, at once if there is one."""
        seen = self._seen
        if seen is not None and seen.took_s < _QUICK_S:
            return self._make(time.monotonic())
        if seen is None or seen.is_old or seen.began_s < self._wanted_s:
            return self._make(self._since_s(seen))
        if not self._is_fresh(seen) and not self._making.locked():
            self.begin()
        return seen.overview

    def fresh(self) -> Overview:
        """The overview, made anew if it is older than it would be with somebody looking."""
        seen = self._seen
        if seen is not None and self._is_fresh(seen):
            return seen.overview
        return self._make(self._since_s(seen))

    def begin(self) -> None:
        """Make one behind the scenes; at the start, so that the first visitor need not wait."""
        threading.Thread(target=self._make_quietly, daemon=True).start()

    def forget(self) -> None:
        """The store was changed here: whoever looks from now on shall see it."""
        self._wanted_s = time.monotonic()

    def _is_fresh(self, seen: _Seen) -> bool:
        return seen.began_s >= self._since_s(seen)

    def _since_s(self, seen: _Seen | None) -> float:
        """What was begun before is not fresh; as long as there is none, the first will do."""
        if seen is None:
            return self._wanted_s
        return max(self._wanted_s, time.monotonic() - seen.rest_s)

    def _make(self, since_s: float) -> Overview:
        """One that was begun since then: the last, the one that is being made now, or another."""
        with self._making:
            if self._seen is None or self._seen.began_s < since_s:
                began_s = time.monotonic()
                made = overview(self._base)
                self._seen = _Seen(made, began_s, time.monotonic() - began_s)
            return self._seen.overview

    def _make_quietly(self) -> None:
        try:
            self._make(self._since_s(self._seen))
        except LastwordError:
            with self._making:
                self._seen = None  # who looks next waits, and is told
