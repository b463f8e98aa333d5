"""What processes have used: CPU and memory, of a process and all that it has started."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def tree(root: int) -> list[int]:
    """The process and its descendants."""
    parents: dict[int, int] = {}
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            parents[int(folder.name)] = int(_fields(int(folder.name))[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def cpu_seconds(root: int) -> float:
    """What they have used so far, children that have ended included."""
    ticks = 0
    for pid in tree(root):
        with suppress(OSError):
            ticks += sum(map(int, _fields(pid)[11:15]))
    return ticks / _TICK


def forget_peaks(root: int) -> None:
    """Let memory peaks count from now on."""
    for pid in tree(root):
        with suppress(OSError):
            (_PROC / str(pid) / "clear_refs").write_text("5")


def peak_mb(root: int) -> float:
    """The sum of their peaks."""
    kilobytes = 0
    for pid in tree(root):
        with suppress(OSError, StopIteration):
            lines = (_PROC / str(pid) / "status").read_text().splitlines()
            kilobytes += int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return kilobytes / 1000


def _fields(pid: int) -> list[str]:
    """Those of /proc/PID/stat after the name, which may contain anything."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
