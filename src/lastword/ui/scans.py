"""What reads many files takes a thread: some at once, so that pages which do not are still answered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import HTTPException

_AT_ONCE = 2
_PATIENCE_S = 1.0


class Busy(HTTPException):
    """Too many are on."""

    def __init__(self) -> None:
        super().__init__(429, "others are reading all keys just now; try again in a while")


class Scans:
    """Those that are on."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(_AT_ONCE)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Around a scan; soon an answer that says "later" if too many are on."""
        if not self._free.acquire(timeout=_PATIENCE_S):
            raise Busy
        try:
            yield
        finally:
            self._free.release()
