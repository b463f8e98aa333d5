"""What reads many files takes a thread: some at once, so that pages which do not are still answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastapi import HTTPException

_AT_ONCE = 2
_PATIENCE_S = 1.0


class Busy(HTTPException):
    """Too many are on."""

    def __init__(self) -> None:
        super().__init__(429, "others are reading all keys just now; try again in a while")


class Ended(HTTPException):
    """Nobody is waited for any more."""

    def __init__(self) -> None:
        super().__init__(503, "the page is being ended")


class Scans:
    """Those that are on."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        self._are_over = threading.Event()

    @contextmanager
    def one(self) -> Iterator[Callable[[int], None]]:
        """Around a scan, which tells what it is given of the bytes that it has read.

        Soon an answer that says "later" if too many are on.
        """
        if not self._free.acquire(timeout=_PATIENCE_S):
            raise Busy
        try:
            yield self._go_on
        finally:
            self._free.release()

    def end(self) -> None:
        """Let all of them end with what they read next."""
        self._are_over.set()

    def _go_on(self, _bytes: int) -> None:
        if self._are_over.is_set():
            raise Ended
