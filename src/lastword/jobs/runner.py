"""What a job is: a function, units of work for it, and what became of each of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from lastword.errors import BrokenFileError, LastwordError

Progress = Callable[[str, int, int], None]  # the step, tasks done, tasks in all


class Unit(Protocol):
    """A piece of work that can be pickled. Its weight tells how to spread units evenly."""

    @property
    def weight(self) -> int: ...


U = TypeVar("U", bound=Unit)
U_contra = TypeVar("U_contra", bound=Unit, contravariant=True)
R = TypeVar("R")


@dataclass(frozen=True)
class Failure:
    """A unit that failed: the error in words, for exceptions do not travel well."""

    sentence: str
    broken_file: str | None = None  # the path, if a file was missing or corrupt


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """What became of a job: a result or a failure for each unit, in their order."""

    results: tuple[R | Failure, ...]
    job_ids: tuple[int, ...] = ()


class Runner(Protocol):
    """Runs jobs. One unit's failure is a value; only a job that could not run at all raises."""

    @property
    def tasks_at_once(self) -> int: ...

    def run(self, step: str, work: Callable[[U], R], units: Sequence[U]) -> Outcome[R]: ...


def attempt(work: Callable[[U_contra], R], unit: U_contra) -> R | Failure:
    """The result, or the failure as a value."""
    try:
        return work(unit)
    except BrokenFileError as error:
        return Failure(str(error), error.name)
    except LastwordError as error:
        return Failure(str(error))
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}")


def packed(units: Sequence[U], tasks: int) -> list[list[int]]:
    """The units' indexes in so many tasks of about the same weight, the heavy ones first."""
    loads = [(0, i) for i in range(min(tasks, len(units)))]
    found: list[list[int]] = [[] for _ in loads]
    for index in sorted(range(len(units)), key=lambda i: -units[i].weight):
        load, task = heapq.heappop(loads)
        found[task].append(index)
        heapq.heappush(loads, (load + units[index].weight, task))
    return found
