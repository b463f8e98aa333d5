"""Throttled I/O: on average no more than so many bytes a second, by sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable

_CHECK_SECONDS = 0.3


class Throttle:
    """Counts the bytes that a task reads and writes, and slows it down where it must."""

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = bytes_per_second, clock, sleep
        self._began = clock()
        self.bytes = 0

    def used(self, count: int) -> None:
        """So many bytes were read or written; sleep if that is ahead of the rate."""
        self.bytes += count
        ahead = self.bytes / self._rate - (self._clock() - self._began)
        if ahead > _CHECK_SECONDS:
            self._sleep(ahead)
