"""For tests of code that uses lastword."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence

from lastword.jobs.runner import Outcome, R, U, attempt


class ManualClock:
    """A clock that stands still until it is told to move.

    >>> clock = ManualClock(1_000)
    >>> clock.advance(500)
    >>> clock()
    1500
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        self.now_ms += ms


class InProcess:
    """Runs the cleaner's jobs in this process, one unit after the other, without Spark.

    For tests that clean small topics: `store.clean(runner=InProcess())`. Units and results are
    pickled as on their way to an executor and back.
    """

    tasks_at_once = 1

    def run(self, step: str, work: Callable[[U], R], units: Sequence[U]) -> Outcome[R]:  # noqa: ARG002
        shipped = pickle.loads(pickle.dumps(tuple(units)))
        results = pickle.loads(pickle.dumps(tuple(attempt(work, unit) for unit in shipped)))
        return Outcome(results)
