"""A round: all eligible partitions, in one pair of Spark jobs; each committed by itself.

The story of a pass, by what a crash after each step leaves:

1. the partition is claimed       a claim, which expires in a minute; the log is as before
2. mark has read the keys         the same
3. sweep has written files        orphans, which `gc` finds; the log is as before
4. the books are checked, and the transaction begins: files swapped, first dirty moved, row written
                                  nothing: the database undoes it; orphans as after 3
5. it is committed                the pass, whole; readers go on with the old files until their
                                  grace is over, or with the new ones
6. the claim is released          the pass, whole
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from lastword.catalog import claims, cleaning, queries
from lastword.catalog.claims import CLAIM_MS
from lastword.catalog.commits import commit_clean
from lastword.catalog.topics import store_settings
from lastword.cleaner import books
from lastword.cleaner import sweep as sweeping
from lastword.cleaner.choose import Asked, decisions_for, expire, roll, within_reach
from lastword.cleaner.mark import Marks, MarkTask, mark
from lastword.cleaner.plan import Clean, Decision, in_order
from lastword.cleaner.sweep import SweepTask, Swept, sweep
from lastword.cleaner.work import Common, Work, covered
from lastword.config import StoreConfig
from lastword.errors import (
    CatalogError,
    ConflictError,
    LastwordError,
    StorageError,
    UnknownTopicError,
)
from lastword.foundation import Foundation
from lastword.jobs.runner import Failure, Outcome, Runner
from lastword.log.offset_map import Shard
from lastword.model import TopicRow
from lastword.passes import ABANDONED, REASONS, Pass
from lastword.retention import Expire


@dataclass(frozen=True)
class Round:
    """What a round did."""

    passes: tuple[Pass, ...] = ()
    expired: tuple[Expire, ...] = ()
    decisions: tuple[Decision, ...] = ()


class Cleaner:
    """A cleaner with an id, which its claims carry. Use it as a context manager."""

    def __init__(self, base: Foundation, runner: Runner) -> None:
        self._base, self._runner = base, runner
        self.id = uuid.uuid4().hex
        self._stopped = threading.Event()
        self._heart = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Cleaner:
        claims.start_cleaner(self._base.catalog, self.id, self._base.clock())
        self._heart.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._heart.join()
        with suppress(CatalogError):  # the claims expire by themselves
            claims.stop_cleaner(self._base.catalog, self.id, self._base.clock())

    def round(self, topics: Sequence[TopicRow], asked: Asked) -> Round:
        """Roll, expire, and clean what is eligible in these topics."""
        compact = [t for t in topics if t.config.is_compact]
        roll(self._base, compact, asked)
        expired = expire(self._base, compact, asked)
        decisions = decisions_for(self._base, compact, asked)
        if not any(isinstance(d, Clean) for d in decisions):  # then Spark need not even be started
            return Round((), tuple(expired), tuple(decisions))
        decisions = decisions_for(self._base, compact, asked, self._runner.tasks_at_once)
        plans = in_order(d for d in decisions if isinstance(d, Clean))
        try:
            works = [w for plan in within_reach(plans) if (w := self.claim(plan)) is not None]
            passes = self._pass(works) if works else []
        finally:
            self.release()
        return Round(tuple(passes), tuple(expired), tuple(decisions))

    def claim(self, plan: Clean) -> Work | None:
        """The partition with its files, if it is ours and still as it was planned."""
        catalog = self._base.catalog
        try:
            if not claims.claim(catalog, plan.state, self.id, self._base.clock):
                return None
            files = cleaning.covered_files(catalog, plan.state, plan.end)
        except UnknownTopicError:
            return None
        return None if files is None else Work(plan, files)

    def release(self) -> None:
        """Give all claims back."""
        with suppress(CatalogError):  # they expire by themselves
            claims.release(self._base.catalog, self.id)

    def _pass(self, works: Sequence[Work]) -> list[Pass]:
        """Mark, sweep and commit these partitions; the passes, failed ones included."""
        started_ms = self._base.clock()
        began = time.perf_counter()
        mark_jobs = self.mark(works)
        marked = time.perf_counter()
        sweep_jobs = self.sweep(works)
        seconds = {"mark": marked - began, "sweep": time.perf_counter() - marked}
        common = Common(started_ms, seconds, (*mark_jobs, *sweep_jobs))
        return [self.commit(work, common) for work in works]

    def mark(self, works: Sequence[Work]) -> tuple[int, ...]:
        """Find the dead records of all partitions, in one job."""
        settings = store_settings(self._base.catalog)
        owners = [(work, index) for work in works for index in range(work.plan.shards)]
        map_bytes = settings.log_cleaner_dedupe_buffer_size // self._runner.tasks_at_once
        rate = self._share(settings, len(owners))
        units = [
            MarkTask(
                covered(work.plan, work.files, self._base.clock()),
                self._base.root,
                Shard(index, work.plan.shards),
                map_bytes,
                rate,
            )
            for work, index in owners
        ]
        outcome: Outcome[Marks] = self._runner.run("mark", mark, units)
        for (work, index), result in zip(owners, outcome.results, strict=True):
            if isinstance(result, Failure):
                work.failure = work.failure or result
            else:
                work.marks = work.marks.and_those(result) if index else result
        return outcome.job_ids

    def sweep(self, works: Sequence[Work]) -> tuple[int, ...]:
        """Write the survivors of all partitions whose marks add up, in one job."""
        owners = []
        for work in works:
            if work.failure is None and _marks_add_up(work):
                config = work.plan.state.topic.config
                work.sweep_plan = sweeping.plan(work.files, work.marks.files, config)
                owners += [(work, rewrite) for rewrite in work.sweep_plan.rewrites]
        rate = self._share(store_settings(self._base.catalog), len(owners))
        units = [
            SweepTask(
                work.plan.state.topic.name,
                work.plan.state.row.partition,
                rewrite.segment_base,
                tuple((f, work.marks.files.get(f.facts.path)) for f in rewrite.inputs),
                self._base.root,
                work.plan.state.topic.config.compression_type,
                self._base.clock(),
                rate,
            )
            for work, rewrite in owners
        ]
        outcome: Outcome[Swept] = self._runner.run("sweep", sweep, units)
        for (work, _), result in zip(owners, outcome.results, strict=True):
            if isinstance(result, Failure):
                work.failure = work.failure or result
            else:
                work.swept.append(result)
        return outcome.job_ids

    def _share(self, settings: StoreConfig, units: int) -> float:
        """A task's share of the I/O that the cleaner may do."""
        at_once = max(1, min(self._runner.tasks_at_once, units))
        return settings.log_cleaner_io_max_bytes_per_second / at_once

    def commit(self, work: Work, common: Common) -> Pass:
        """Check the books and commit; if that cannot be, note the failure."""
        topic, done = work.plan.state.topic, work.row(common)
        try:
            if work.failure is None:
                books.check_swept(work.where, work.files, work.marks, work.sweep_plan, work.swept)
                return commit_clean(
                    self._base.catalog, topic, done, work.swap(), self.id, self._base.clock()
                )
        except (ConflictError, UnknownTopicError) as error:
            return self._failed(work, done, f"{ABANDONED}{error}", is_fault=False)
        except CatalogError as error:  # the files stay: `gc` finds them if they are not taken
            return replace(done, error=f"whether it was committed is not known: {error}")
        except LastwordError as error:
            return self._failed(work, done, str(error))
        broken = work.failure.broken_file
        if broken is not None and not queries.is_live(self._base.catalog, broken):
            sentence = f"{ABANDONED}{broken} is no longer part of the log"
            return self._failed(work, done, sentence, is_fault=False)
        return self._failed(work, done, work.failure.sentence)

    def _failed(self, work: Work, done: Pass, error: str, *, is_fault: bool = True) -> Pass:
        """The pass that came to nothing: what it wrote is deleted, and its row says why."""
        with suppress(StorageError):  # `gc` finds what cannot be deleted
            self._base.root.delete([s.facts.path for s in work.swept])
        failed = replace(
            done,
            error=error,
            records_out=done.records_in,
            bytes_out=done.bytes_in,
            removed=dict.fromkeys(REASONS, 0),
            first_tombstone=None,
        )
        topic_id = work.plan.state.topic.id
        now_ms = self._base.clock()
        pass_id = cleaning.record_failure(
            self._base.catalog, topic_id, failed, now_ms, is_fault=is_fault
        )
        return replace(failed, id=pass_id)

    def _beat(self) -> None:
        """Be seen, and keep the claims, while the jobs run."""
        while not self._stopped.wait(CLAIM_MS / 3000):
            with suppress(CatalogError):
                claims.renew(self._base.catalog, self.id, self._base.clock)


def _marks_add_up(work: Work) -> bool:
    """Whether they do; if not, the pass has failed."""
    try:
        books.check_marks(work.where, work.files, work.marks)
    except LastwordError as error:
        work.failure = Failure(str(error))
    return work.failure is None
