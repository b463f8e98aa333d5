"""Values on the screen: tables for people, JSON for programs; progress and errors on stderr."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

_PIPED_WIDTH = 120

errors = Console(stderr=True)


def out() -> Console:
    """The console for results."""
    width = None if sys.stdout.isatty() else _PIPED_WIDTH
    return Console(width=width, highlight=False)


def show_json(value: Any) -> None:
    """A value as one JSON document."""
    print(json.dumps(plain(value), indent=2, ensure_ascii=False))


def show_line(text: str) -> None:
    """A line for people."""
    out().print(text, markup=False, soft_wrap=True)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """A table; numbers stand to the right."""
    table = Table(title=title or None, title_justify="left", title_style="bold")
    for i, column in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[i], int) for row in rows)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(cell)) for cell in row))
    out().print(table)


def bytes_progress(what: str) -> Progress:
    """A progress bar over bytes, on stderr."""
    columns = (f"{what}", BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return "" if value is None else str(value)


def plain(value: Any) -> Any:
    """The value in what JSON knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value)]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
