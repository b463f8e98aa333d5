"""Numbers in words, for people: sizes, moments, durations, settings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

_NO_LIMIT = 1e18  # Kafka's own are 2⁶³-1 and the largest double


def in_bytes(count: int) -> str:
    """1 byte, 12 bytes, 3.4 kB, 1.2 MB: powers of ten."""
    if count < 1000:
        return counted(count, "byte")
    size = count / 1000
    for unit in ("kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def counted(count: int, one: str, many: str = "") -> str:
    """1 record, 2 records."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def removed_in_words(removed: Mapping[str, int]) -> str:
    """3 obsolete, 1 tombstone: records by the reason why they went."""
    many = {"tombstone": "tombstones", "null key": "null keys"}
    return (
        ", ".join(
            f"{count:,} {reason if count == 1 else many.get(reason, reason)}"
            for reason, count in removed.items()
            if count
        )
        or "nothing"
    )


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


def setting_in_words(key: str, value: str) -> str:
    """7 d for 604800000 of a setting in ms; empty if the number says as much by itself."""
    how = {"ms": in_duration, "bytes": in_bytes, "size": in_bytes, "second": in_bytes}
    unit = how.get(key.rpartition(".")[2])
    if unit is None or abs(number := float(value)) < 1000:
        return "no limit" if value == "-1" else ""
    return "no limit" if number > _NO_LIMIT else unit(int(number))
