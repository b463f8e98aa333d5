"""Jobs on Spark: a task gets some units, and hands back a row for each, errors included.

The work travels inside the function that mapInArrow ships, and the results come back as small
pickled values: no second Python worker, no shuffle. A task that Spark runs twice hands its rows back
once.
"""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lastword.errors import SparkError
from lastword.jobs.runner import Failure, Outcome, Progress, R, U, attempt, packed
from lastword.jobs.session import is_dead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA = "unit int, result binary"
_TASKS_PER_SLOT = 2  # so that an uneven task does not keep the others waiting
_POLL_SECONDS = 0.25
_GROUP_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


def _quiet(_step: str, _done: int, _all: int) -> None:
    return None


class SparkRunner:
    """Runs jobs on a Spark session."""

    def __init__(
        self, session: SparkSession | Callable[[], SparkSession], progress: Progress = _quiet
    ) -> None:
        """`session` may be a function that starts one, which is called when there is work."""
        self._given, self._progress = session, progress
        self._interrupted = threading.Event()

    @cached_property
    def session(self) -> SparkSession:
        """The session, started if it has to be."""
        session = self._given() if callable(self._given) else self._given
        if not hasattr(session, "_jsc"):
            raise SparkError("this needs a classic Spark session, not Spark Connect")
        return session

    def interrupt(self) -> None:
        """End the running job, and let no other begin: `run` raises KeyboardInterrupt.

        For signal handlers: a job that is cancelled by another thread leaves Spark's connection whole.
        """
        self._interrupted.set()

    def _raise_if_interrupted(self) -> None:
        if self._interrupted.is_set():
            raise KeyboardInterrupt

    @property
    def tasks_at_once(self) -> int:
        """How many tasks Spark runs at the same time."""
        if is_dead(self.session):
            raise SparkError("Spark has gone away: its process ended, or its context was stopped")
        return max(1, int(self.session.sparkContext.defaultParallelism))

    def run(self, step: str, work: Callable[[U], R], units: Sequence[U]) -> Outcome[R]:
        """Run the job. If Spark gives it up, each unit is tried alone: one may kill its worker."""
        self._raise_if_interrupted()
        if not units:
            return Outcome(())
        try:
            return self._run(step, work, units)
        except SparkError as error:
            if is_dead(self.session):
                raise
            if len(units) == 1:
                return Outcome((Failure(str(error)),))
        alone = [self.run(step, work, [unit]) for unit in units]
        results = tuple(result for outcome in alone for result in outcome.results)
        return Outcome(results, tuple(i for outcome in alone for i in outcome.job_ids))

    def _run(self, step: str, work: Callable[[U], R], units: Sequence[U]) -> Outcome[R]:
        tasks = packed(units, _TASKS_PER_SLOT * self.tasks_at_once)
        function = partial(_run_task, work, [[(i, units[i]) for i in task] for task in tasks])
        with self.job(step) as job_ids:
            source = self.session.range(0, len(tasks), 1, len(tasks))
            rows = source.mapInArrow(function, _SCHEMA).toArrow()
        results = dict(zip(rows["unit"].to_pylist(), rows["result"].to_pylist(), strict=True))
        if sorted(results) != list(range(len(units))):
            raise SparkError(f"{step}: {len(units)} results were due, {rows.num_rows} came")
        return Outcome(tuple(pickle.loads(results[i]) for i in range(len(units))), tuple(job_ids))

    @contextmanager
    def job(self, step: str) -> Iterator[list[int]]:
        """Everything in the block is one job group: watched, and cancelled if the block is left."""
        self._raise_if_interrupted()
        context, group = self.session.sparkContext, f"lastword-{uuid.uuid4().hex}"
        job_ids: list[int] = []
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(step, group, done), daemon=True)
        before = {name: context.getLocalProperty(name) for name in _GROUP_PROPERTIES}
        context.setJobGroup(group, f"lastword: {step}", interruptOnCancel=True)
        watcher.start()
        try:
            yield job_ids
            job_ids += sorted(context.statusTracker().getJobIdsForGroup(group))
        except BaseException as error:
            with suppress(Exception):  # if Spark is gone, so is the job
                context.cancelJobGroup(group)
            if not isinstance(error, Exception):
                raise
            if self._interrupted.is_set() or _is_interrupted(error):
                raise KeyboardInterrupt from error
            raise SparkError(f"the {step} job failed: {_in_words(error)}") from error
        finally:
            done.set()
            watcher.join()
            with suppress(Exception):
                for name, value in before.items():
                    context.setLocalProperty(name, value)  # type: ignore[arg-type]

    def _watch(self, step: str, group: str, done: threading.Event) -> None:
        """Report how many tasks have ended, until the job has."""
        while not done.wait(_POLL_SECONDS) and not is_dead(self.session):
            try:
                if self._interrupted.is_set():
                    self.session.sparkContext.cancelJobGroup(group)
                tasks = self._tasks_of(group)
            except Exception:
                if is_dead(self.session):  # by now; the job's own thread says so
                    return
                raise
            self._progress(step, *tasks)

    def _tasks_of(self, group: str) -> tuple[int, int]:
        """How many tasks of a job have ended, and of how many that are known."""
        tracker = self.session.sparkContext.statusTracker()
        jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group))
        numbers = [number for job in jobs if job is not None for number in job.stageIds]
        stages = [s for s in map(tracker.getStageInfo, numbers) if s is not None]
        return sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages)


def _run_task(
    work: Callable[[Any], Any],
    tasks: Sequence[Sequence[tuple[int, Any]]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """In an executor: do the units of the tasks whose numbers came, and yield a row for each."""
    schema = pa.schema([("unit", pa.int32()), ("result", pa.binary())])
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for index, unit in tasks[number]:
                result = pickle.dumps(attempt(work, unit))
                yield pa.RecordBatch.from_arrays(
                    [pa.array([index], pa.int32()), pa.array([result], pa.binary())], schema=schema
                )


def root_cause(thrown: Any) -> Any:
    """Where a Java exception began."""
    while (cause := thrown.getCause()) is not None:
        thrown = cause
    return thrown


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether it began with Ctrl-C: Spark cancels the job, whose failure then comes on top."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _in_words(error: Exception) -> str:
    """The first line that says something, of what the JVM sent."""
    thrown = getattr(error, "java_exception", None)
    text = str(error) if thrown is None else root_cause(thrown).toString()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:500] if lines else type(error).__name__
