"""How long tests go on that try things at random: `make soak` makes them so many times as long."""

from __future__ import annotations

import os

_TIMES = int(os.environ.get("LASTWORD_SOAK") or 1)


def times(count: int) -> int:
    """So often, or more."""
    return count * _TIMES
