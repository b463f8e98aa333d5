"""Time is an argument: a clock is anything that returns milliseconds since 1970."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]


def system_clock() -> int:
    """The wall clock, in milliseconds."""
    return time.time_ns() // 1_000_000
