"""What is seen of the cleaner while it runs: a progress bar, a live status, or log lines."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType
from typing import Self

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from lastword.cleaner.service import Told
from lastword.cli.render import errors
from lastword.jobs.runner import Progress as JobProgress
from lastword.jobs.spark import SparkRunner
from lastword.passes import Pass
from lastword.words import in_bytes, in_duration, removed_in_words

_SHOWN_PASSES = 12


def pass_line(p: Pass) -> str:
    """A pass in one line."""
    where, took = f"{p.topic}-{p.partition}", in_duration(1000 * sum(p.seconds.values()))
    if p.error:
        return f"{where}: nothing was changed: {p.error}"
    return (
        f"{where}: {p.records_in} → {p.records_out} records ({removed_in_words(p.removed)} removed), "
        f"{in_bytes(p.bytes_in)} → {in_bytes(p.bytes_out)}, {p.files_written} file(s) written, "
        f"{p.files_kept} kept, in {took} ({p.cause})"
    )


@contextmanager
def job_progress() -> Iterator[JobProgress]:
    """A progress bar over the tasks of Spark's jobs, on stderr; gone when they are done."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    is_quiet = not errors.is_terminal
    with Progress(*columns, console=errors, transient=True, disable=is_quiet) as bar:
        task = bar.add_task("starting Spark", total=None)

        def progress(step: str, done: int, total: int) -> None:
            bar.update(task, description=step, completed=done, total=total or None)

        yield progress


class LogLines:
    """A line a thing that happened, on stderr."""

    def __enter__(self) -> Self:
        self.say("the cleaner starts")
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def say(self, text: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        errors.print(f"{now} {text}", markup=False, highlight=False, soft_wrap=True)

    def progress(self, _step: str, _done: int, _total: int) -> None:
        return None

    def tell(self, told: Told) -> None:
        for line in _lines(told):
            self.say(line)


class LiveStatus:
    """The last passes as a table, and below it what goes on now."""

    def __init__(self, url: str) -> None:
        self._url, self._state = url, "starting Spark"
        self._lines: deque[str] = deque(maxlen=_SHOWN_PASSES)
        self._rounds = self._cleaned = 0
        self._live = Live(console=errors, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.__enter__()
        self._show()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def say(self, text: str) -> None:
        self._state = text
        self._show()

    def progress(self, step: str, done: int, total: int) -> None:
        self.say(f"{step}: {done} of {total} task(s)" if total else step)

    def tell(self, told: Told) -> None:
        self._rounds += 1
        self._cleaned += sum(1 for p in told.done.passes if not p.error)
        self._lines.extend(_lines(told))
        sleeps = f"idle, looks again in {in_duration(told.sleep_ms)}"
        self.say(told.trouble or (sleeps if told.sleep_ms else "looks for the next"))

    def _show(self) -> None:
        table = Table(title=f"cleaner of {self._url}", title_justify="left", show_header=False)
        table.add_column(overflow="fold")
        for line in self._lines or ["nothing was cleaned yet"]:
            table.add_row(Text(line))
        status = f"{self._rounds} round(s), {self._cleaned} pass(es); {self._state}"
        self._live.update(Group(table, Text(status)))


def _lines(told: Told) -> Iterator[str]:
    if told.trouble:
        yield f"trouble, to be tried again: {told.trouble}"
    for p in told.done.passes:
        yield pass_line(p)
    for e in told.done.expired:
        yield f"{e.topic}-{e.partition}: expired {e}"
    if told.deleted:
        size = in_bytes(sum(f.bytes for f in told.deleted))
        yield f"deleted {len(told.deleted)} retired or orphaned file(s), {size}"


def interrupt_on_signals(runner: SparkRunner, stop: threading.Event) -> None:
    """Ctrl-C and SIGTERM end the running job, and then all; a second one ends all at once."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        runner.interrupt()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
