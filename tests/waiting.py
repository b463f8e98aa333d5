"""To wait for what another thread or process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(is_so: Callable[[], bool], seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)
