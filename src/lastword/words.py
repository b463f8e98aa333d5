"""Numbers in words, for people: sizes, moments, durations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def in_bytes(count: int) -> str:
    """12 bytes, 3.4 kB, 1.2 MB: powers of ten."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def in_time(ms: int) -> str:
    """2026-11-16 04:05:06.789Z; beyond the calendar, the number."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def in_duration(ms: float) -> str:
    """850 ms, 12.3 s, 4 min 10 s, 3 h 5 min, 2 d 4 h."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    for size, unit, small, small_unit in (
        (86_400_000, "d", 3_600_000, "h"),
        (3_600_000, "h", 60_000, "min"),
        (60_000, "min", 1000, "s"),
    ):
        if ms >= size:
            rest = int(ms % size // small)
            return f"{int(ms // size)} {unit}" + (f" {rest} {small_unit}" if rest else "")
    raise AssertionError(ms)
