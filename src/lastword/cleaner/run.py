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
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby

from lastword import retention
from lastword.catalog import cleaning, queries
from lastword.catalog.cleaning import CLAIM_MS
from lastword.catalog.commits import commit_clean, commit_roll
from lastword.catalog.engine import author
from lastword.catalog.topics import store_settings
from lastword.cleaner import books
from lastword.cleaner import sweep as sweeping
from lastword.cleaner.mark import Marks, MarkTask, mark
from lastword.cleaner.offset_map import Shard
from lastword.cleaner.plan import Capacity, Clean, Decision, as_if_rolled, decide, in_order
from lastword.cleaner.scan import Covered
from lastword.cleaner.sweep import SweepPlan, SweepTask, Swept, sweep
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
from lastword.model import LogFile, TopicRow
from lastword.passes import Horizon, NewFile, Pass, Swap
from lastword.retention import Expire

_ROUND_RECORDS = 1 << 30  # a bit each is kept in the driver between mark and sweep


@dataclass(frozen=True)
class Asked:
    """What a round is asked for. `retry`: do not wait after failures."""

    partition: int | None = None
    force: bool = False
    retry: bool = True


@dataclass(frozen=True)
class Round:
    """What a round did."""

    passes: tuple[Pass, ...] = ()
    expired: tuple[Expire, ...] = ()
    decisions: tuple[Decision, ...] = ()


@dataclass
class _Work:
    """One partition in the middle of its pass."""

    plan: Clean
    files: list[LogFile]
    marks: Marks = field(default_factory=lambda: Marks({}))
    sweep_plan: SweepPlan = field(default_factory=SweepPlan)
    swept: list[Swept] = field(default_factory=list)
    failure: Failure | None = None

    @property
    def where(self) -> str:
        return self.plan.state.where


class Cleaner:
    """A cleaner with an id, which its claims carry. Use it as a context manager."""

    def __init__(self, base: Foundation, runner: Runner) -> None:
        self._base, self._runner = base, runner
        self.id = uuid.uuid4().hex
        self._stopped = threading.Event()
        self._heart = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Cleaner:
        cleaning.start_cleaner(self._base.catalog, self.id, self._base.clock())
        self._heart.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._heart.join()
        with suppress(CatalogError):  # the claims expire by themselves
            cleaning.stop_cleaner(self._base.catalog, self.id, self._base.clock())

    def round(self, topics: Sequence[TopicRow], asked: Asked) -> Round:
        """Roll, expire, and clean what is eligible in these topics."""
        catalog, now_ms = self._base.catalog, self._base.clock()
        compact = [t for t in topics if t.config.is_compact]
        roll(self._base, compact, asked)
        expired = retention.expire(catalog, [t for t in compact if t.config.is_delete], now_ms)
        decisions = decisions_for(self._base, compact, asked, self._runner.tasks_at_once)
        plans = in_order(d for d in decisions if isinstance(d, Clean))
        try:
            works = [w for plan in _within_reach(plans) if (w := self._claimed(plan)) is not None]
            passes = self._pass(works) if works else []
        finally:
            with suppress(CatalogError):
                cleaning.release(catalog, self.id)
        return Round(tuple(passes), tuple(expired), tuple(decisions))

    def _claimed(self, plan: Clean) -> _Work | None:
        """The partition with its files, if it is ours and still as it was planned."""
        catalog = self._base.catalog
        try:
            if not cleaning.claim(catalog, plan.state, self.id, self._base.clock()):
                return None
            files = cleaning.covered_files(catalog, plan.state, plan.end)
        except UnknownTopicError:
            return None
        return None if files is None else _Work(plan, files)

    def _pass(self, works: Sequence[_Work]) -> list[Pass]:
        """Mark, sweep and commit these partitions; the passes, failed ones included."""
        settings = store_settings(self._base.catalog)
        started_ms = self._base.clock()
        began = time.perf_counter()
        try:
            mark_jobs = self._mark(works, settings)
            marked = time.perf_counter()
            sweep_jobs = self._sweep(works, settings)
        except BaseException:
            for work in works:
                self._discard(work)
            raise
        seconds = {"mark": marked - began, "sweep": time.perf_counter() - marked}
        common = _Common(started_ms, seconds, (*mark_jobs, *sweep_jobs))
        return [done for work in works if (done := self._commit(work, common)) is not None]

    def _mark(self, works: Sequence[_Work], settings: StoreConfig) -> tuple[int, ...]:
        """Find the dead records of all partitions, in one job."""
        at_once = self._runner.tasks_at_once
        units, owners = [], []
        for work in works:
            for index in range(work.plan.shards):
                units.append(
                    MarkTask(
                        covered(work.plan, work.files, self._base.clock()),
                        self._base.root,
                        Shard(index, work.plan.shards),
                        settings.log_cleaner_dedupe_buffer_size // at_once,
                        settings.log_cleaner_io_max_bytes_per_second / at_once,
                    )
                )
                owners.append(work)
        outcome: Outcome[Marks] = self._runner.run("mark", mark, units)
        for work, results in groupby(zip(owners, outcome.results, strict=True), lambda o: o[0]):
            for i, (_, result) in enumerate(results):
                if isinstance(result, Failure):
                    work.failure = result
                elif work.failure is None:
                    work.marks = work.marks.and_those(result) if i else result
        return outcome.job_ids

    def _sweep(self, works: Sequence[_Work], settings: StoreConfig) -> tuple[int, ...]:
        """Write the survivors of all partitions whose marks add up, in one job."""
        at_once = self._runner.tasks_at_once
        units, owners = [], []
        for work in works:
            if work.failure is not None or not _checked_marks(work):
                continue
            topic = work.plan.state.topic
            work.sweep_plan = sweeping.plan(work.files, work.marks.files, topic.config)
            for rewrite in work.sweep_plan.rewrites:
                units.append(
                    SweepTask(
                        work.where,
                        topic.name,
                        work.plan.state.row.partition,
                        rewrite.segment_base,
                        tuple((f, work.marks.files.get(f.facts.path)) for f in rewrite.inputs),
                        self._base.root,
                        topic.config.compression_type,
                        self._base.clock(),
                        settings.log_cleaner_io_max_bytes_per_second / at_once,
                    )
                )
                owners.append(work)
        outcome: Outcome[Swept] = self._runner.run("sweep", sweep, units)
        for work, result in zip(owners, outcome.results, strict=True):
            if isinstance(result, Failure):
                work.failure = work.failure or result
            else:
                work.swept.append(result)
        return outcome.job_ids

    def _commit(self, work: _Work, common: _Common) -> Pass | None:
        """Check the books and commit. None: the log has changed under the pass, so it was for nothing."""
        topic = work.plan.state.topic
        done = _pass_row(work, common)
        try:
            if work.failure is not None:
                return self._failed(work, done)
            books.check_swept(work.where, work.files, work.marks, work.sweep_plan, work.swept)
            return commit_clean(
                self._base.catalog, topic, done, _swap(work), self.id, self._base.clock()
            )
        except (ConflictError, UnknownTopicError):
            self._discard(work)
            return None
        except CatalogError:
            raise  # whether it was committed is not known: the files stay, `gc` finds them if not
        except LastwordError as error:
            work.failure = Failure(str(error))
            return self._failed(work, done)

    def _failed(self, work: _Work, done: Pass) -> Pass | None:
        """Note the failure; None if the file that broke is no longer part of the log."""
        self._discard(work)
        assert work.failure is not None
        broken = work.failure.broken_file
        if broken is not None and not queries.is_live(self._base.catalog, broken):
            return None
        failed = replace(
            done,
            error=work.failure.sentence,
            records_out=done.records_in,
            bytes_out=done.bytes_in,
            removed=dict.fromkeys(done.removed, 0),
            first_tombstone=None,
        )
        cleaning.record_failure(
            self._base.catalog, work.plan.state.topic.id, failed, self._base.clock()
        )
        return failed

    def _discard(self, work: _Work) -> None:
        """Delete what sweep wrote and no commit will take; `gc` finds what cannot be deleted."""
        with suppress(StorageError):
            self._base.root.delete([s.facts.path for s in work.swept])

    def _beat(self) -> None:
        """Be seen, and keep the claims, while the jobs run."""
        while not self._stopped.wait(CLAIM_MS / 3000):
            with suppress(CatalogError):
                cleaning.renew(self._base.catalog, self.id, self._base.clock())


def roll(base: Foundation, topics: Iterable[TopicRow], asked: Asked) -> None:
    """Roll the active segments: all if it is forced, else those that have become too old."""
    for topic in topics:
        with suppress(UnknownTopicError):
            commit_roll(
                base.catalog, topic, asked.partition, base.clock(), only_due=not asked.force
            )


def decisions_for(
    base: Foundation,
    topics: Sequence[TopicRow],
    asked: Asked,
    tasks_at_once: int,
    *,
    as_if: bool = False,
) -> list[Decision]:
    """What the cleaner does with every partition that was asked for.

    `as_if`: what it would do, if it were to roll the active segments first where it is forced.
    """
    now_ms, settings = base.clock(), store_settings(base.catalog)
    capacity = Capacity(settings.log_cleaner_dedupe_buffer_size // tasks_at_once)
    groups_since_ms = now_ms - settings.offsets_retention_minutes * 60_000
    found = cleaning.states(base.catalog, topics, groups_since_ms)
    return [
        decide(
            as_if_rolled(state) if as_if and asked.force else state,
            now_ms,
            capacity,
            force=asked.force,
            retry=asked.retry,
        )
        for state in found
        if asked.partition in (None, state.row.partition)
    ]


@dataclass(frozen=True)
class _Common:
    """What all passes of a round share."""

    started_ms: int
    seconds: dict[str, float]
    jobs: tuple[int, ...]


def _within_reach(plans: Sequence[Clean]) -> list[Clean]:
    """The first plans, as many as one round can do; at least one."""
    records = 0
    for i, plan in enumerate(plans):
        records += plan.records
        if records > _ROUND_RECORDS:
            return list(plans[: max(1, i)])
    return list(plans)


def covered(plan: Clean, files: Sequence[LogFile], now_ms: int) -> Covered:
    """What the pass covers, as mark needs to know it."""
    return Covered(
        where=plan.state.where,
        files=tuple(files),
        dirty_from=plan.start,
        horizons=plan.state.horizons,
        new_horizon=Horizon(0, plan.start, plan.end, plan.horizon_ms, plan.start),
        now_ms=now_ms,
        held_from=plan.state.held_from,
    )


def _checked_marks(work: _Work) -> bool:
    """Whether the marks add up; if not, the pass has failed."""
    try:
        books.check_marks(work.where, work.files, work.marks)
    except LastwordError as error:
        work.failure = Failure(str(error))
    return work.failure is None


def _swap(work: _Work) -> Swap:
    plan = work.sweep_plan
    gone = [f for rewrite in plan.rewrites for f in rewrite.inputs] + list(plan.emptied)
    firsts: dict[int, int] = {}
    for marks in work.marks.files.values():
        for pass_id, offset in marks.first_tombstones.items():
            firsts[pass_id] = min(offset, firsts.get(pass_id, offset))
    return Swap(
        retired=tuple(f.facts.path for f in gone),
        added=tuple(NewFile(s.segment_base, s.base_offset, s.facts) for s in work.swept),
        moved=plan.moved or {},
        first_tombstones={
            h.pass_id: firsts.get(h.pass_id)
            for h in work.plan.state.horizons
            if firsts.get(h.pass_id) != h.first_tombstone
        },
    )


def _pass_row(work: _Work, common: _Common) -> Pass:
    """The pass as its row tells it, if it can be committed."""
    plan, marks = work.plan, work.marks
    gone = [f for rewrite in work.sweep_plan.rewrites for f in rewrite.inputs]
    gone += work.sweep_plan.emptied
    removed = books.removed(marks)
    records_in = sum(f.facts.records for f in work.files)
    bytes_in = sum(f.facts.bytes for f in work.files)
    bytes_written = sum(s.facts.bytes for s in work.swept)
    firsts = [f.first_tombstones[0] for f in marks.files.values() if 0 in f.first_tombstones]
    return Pass(
        topic=plan.state.topic.name,
        partition=plan.state.row.partition,
        cause=plan.cause,
        by=author(),
        started_ms=common.started_ms,
        start=plan.start,
        end=plan.end,
        horizon_ms=plan.horizon_ms,
        dirty_ratio=plan.standing.dirty_ratio,
        delay_ms=plan.standing.delay_ms,
        records_in=records_in,
        records_out=records_in - sum(removed.values()),
        removed=removed,
        bytes_in=bytes_in,
        bytes_out=bytes_in - sum(f.facts.bytes for f in gone) + bytes_written,
        bytes_read=marks.bytes_read + sum(s.bytes_read for s in work.swept),
        bytes_written=bytes_written,
        files_kept=len(work.files) - len(gone),
        files_rewritten=len(gone),
        files_written=len(work.swept),
        keys=marks.keys,
        map_fill=marks.map_fill,
        shards=marks.shards,
        seconds=common.seconds,
        jobs=common.jobs,
        first_tombstone=min(firsts, default=None),
    )
