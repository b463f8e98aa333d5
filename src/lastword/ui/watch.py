"""The overview of a store, kept fresh while somebody looks.

With many files it takes longer to make than a visitor should wait. So a page shows the last one and
says how old it is, and meanwhile a thread makes the next.
"""

from __future__ import annotations

import threading
import time

from lastword.cleaner.overview import Overview, overview
from lastword.errors import LastwordError
from lastword.foundation import Foundation

_FRESH_S = 2.0
_REST = 5  # times as long as it took, nothing is done
_OLD_S = 60.0  # nobody has looked for long: who looks now had better wait
_QUICK_S = 0.05  # what takes no longer is made for every visitor


class Watch:
    """Safe to use from several threads."""

    def __init__(self, base: Foundation) -> None:
        self._base = base
        self._seen: Overview | None = None
        self._began_s = self._took_s = 0.0
        self._wanted_s = 0.0  # what was begun before is not good enough
        self._making = threading.Lock()

    def seen(self) -> Overview:
        """The overview, at once if there is one."""
        seen = self._seen
        if seen is not None and self._took_s < _QUICK_S:
            return self._make(time.monotonic())
        is_old = self._age_s() > max(_OLD_S, 2 * self._rest_s())
        if seen is None or is_old or self._began_s < self._wanted_s:
            return self._make(self._since_s())
        if not self._is_fresh() and not self._making.locked():
            self.begin()
        return seen

    def fresh(self) -> Overview:
        """The overview, made anew if it is older than it would be with somebody looking."""
        seen = self._seen
        return seen if seen is not None and self._is_fresh() else self._make(self._since_s())

    def begin(self) -> None:
        """Make one behind the scenes; at the start, so that the first visitor need not wait."""
        threading.Thread(target=self._make_quietly, daemon=True).start()

    def forget(self) -> None:
        """The store was changed here: whoever looks from now on shall see it."""
        self._wanted_s = time.monotonic()

    def _is_fresh(self) -> bool:
        return self._began_s >= self._since_s()

    def _since_s(self) -> float:
        """What was begun before is not fresh; as long as there is none, the first will do."""
        if self._seen is None:
            return self._wanted_s
        return max(self._wanted_s, time.monotonic() - self._rest_s())

    def _age_s(self) -> float:
        return time.monotonic() - self._began_s

    def _rest_s(self) -> float:
        return max(_FRESH_S, _REST * self._took_s)

    def _make(self, since_s: float) -> Overview:
        """One that was begun since then: the last, the one that is being made now, or another."""
        with self._making:
            if self._seen is None or self._began_s < since_s:
                began_s = time.monotonic()
                self._seen = overview(self._base)
                self._took_s = time.monotonic() - began_s
                self._began_s = began_s
            return self._seen

    def _make_quietly(self) -> None:
        try:
            self._make(self._since_s())
        except LastwordError:
            with self._making:
                self._seen = None  # who looks next waits, and is told
