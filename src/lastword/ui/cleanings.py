"""The cleaner, run for visitors: one cleaning at a time, in a thread, each watched while it runs."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from fastapi import HTTPException

from lastword.cleaner.choose import Asked
from lastword.cleaner.plan import Nothing
from lastword.cleaner.run import Round
from lastword.errors import LastwordError
from lastword.jobs.runner import Progress, Runner
from lastword.jobs.session import found_or_started
from lastword.jobs.spark import SparkRunner
from lastword.passes import Pass
from lastword.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_MOST_KEPT = 50

NewRunner = Callable[[Progress], Runner]


class State(StrEnum):
    """How far a cleaning is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Cleaning:
    """A cleaning that somebody asked for."""

    id: int
    topic: str
    state: State = State.WAITING
    step: str = ""  # what goes on
    tasks_done: int = 0
    tasks: int = 0
    passes: tuple[Pass, ...] = ()
    expired: tuple[str, ...] = ()  # what retention dropped first
    left: tuple[str, ...] = ()  # why partitions were left alone
    error: str | None = None


def on_spark(master: str | None, conf: Mapping[str, str]) -> NewRunner:
    """Runners on the Spark of this process, which is started when there is work."""

    def session() -> SparkSession:
        return found_or_started(master, conf, is_quick=False)

    return lambda progress: SparkRunner(session, progress)


class Cleanings:
    """Safe to use from several threads."""

    def __init__(self, store: Store, new_runner: NewRunner, on_done: Callable[[], None]) -> None:
        self._store, self._new_runner, self._on_done = store, new_runner, on_done
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="cleaning")
        self._lock = threading.Lock()
        self._known: OrderedDict[int, Cleaning] = OrderedDict()
        self._running: Runner | None = None
        self._last_id = 0

    def start(self, topic: str, asked: Asked) -> Cleaning:
        """Clean a topic as soon as those before it are done."""
        self._store.plan(topic, partition=asked.partition)  # what cannot be is told at once
        with self._lock:
            self._last_id += 1
            cleaning = self._known[self._last_id] = Cleaning(self._last_id, topic)
            over = [c.id for c in self._known.values() if c.state in (State.DONE, State.FAILED)]
            for old in over[: max(0, len(self._known) - _MOST_KEPT)]:
                del self._known[old]
        self._pool.submit(self._run, cleaning.id, topic, asked)
        return cleaning

    def get(self, cleaning_id: int) -> Cleaning:
        """A cleaning, as far as it is."""
        with self._lock:
            if cleaning_id not in self._known:
                raise HTTPException(404, f"no cleaning {cleaning_id} is known here")
            return self._known[cleaning_id]

    def close(self) -> None:
        """End the one that runs, and let no other begin."""
        running = self._running
        if isinstance(running, SparkRunner):
            running.interrupt()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, cleaning_id: int, topic: str, asked: Asked) -> None:
        def progress(step: str, done: int, tasks: int) -> None:
            self._change(cleaning_id, step=step, tasks_done=done, tasks=tasks)

        self._change(cleaning_id, state=State.RUNNING, step="starting Spark")
        found: dict[str, object] = {"state": State.FAILED, "error": "it was ended"}
        try:
            self._running = self._new_runner(progress)
            found = _outcome(self._store.clean_round([topic], asked, self._running))
        except LastwordError as error:
            found["error"] = str(error)
        except Exception as error:
            _log.exception("a cleaning of %s failed", topic)
            found["error"] = f"{type(error).__name__}: {error}"
        finally:
            self._running = None
            self._on_done()
            self._change(cleaning_id, step="", **found)

    def _change(self, cleaning_id: int, **values: object) -> None:
        with self._lock:
            if cleaning_id in self._known:
                self._known[cleaning_id] = replace(self._known[cleaning_id], **values)  # type: ignore[arg-type]


def _outcome(done: Round) -> dict[str, object]:
    left = [f"{d.state.where}: {d.reason}" for d in done.decisions if isinstance(d, Nothing)]
    failed = next((p.error for p in done.passes if p.error), None)
    return {
        "state": State.FAILED if failed else State.DONE,
        "passes": done.passes,
        "expired": tuple(f"{e.where}: expired {e}" for e in done.expired),
        "left": tuple(left),
        "error": failed,
    }
