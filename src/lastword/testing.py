"""For tests of code that uses lastword."""

from __future__ import annotations


class ManualClock:
    """A clock that stands still until it is told to move.

    >>> clock = ManualClock(1_000)
    >>> clock.advance(500)
    >>> clock()
    1500
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        self.now_ms += ms
