"""One partition in the middle of its pass: what mark and sweep found, what the commit will change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lastword.catalog.engine import author
from lastword.cleaner import books
from lastword.cleaner.covered import Covered
from lastword.cleaner.mark import Marks
from lastword.cleaner.plan import Clean
from lastword.cleaner.sweep import SweepPlan, Swept
from lastword.jobs.runner import Failure
from lastword.model import LogFile
from lastword.passes import FileChange, Horizon, NewFile, Pass, Swap

_MOST_CHANGES = 1_000  # files that a pass's account names


@dataclass(frozen=True)
class Common:
    """What all passes of a round share."""

    started_ms: int
    seconds: dict[str, float]
    jobs: tuple[int, ...]


@dataclass(eq=False)
class Work:
    """Filled in step by step; a failure ends it."""

    plan: Clean
    files: list[LogFile]
    marks: Marks = field(default_factory=lambda: Marks({}))
    sweep_plan: SweepPlan = field(default_factory=SweepPlan)
    swept: list[Swept] = field(default_factory=list)
    failure: Failure | None = None

    @property
    def where(self) -> str:
        return self.plan.state.where

    def swap(self) -> Swap:
        """What the pass changes in the catalog."""
        firsts = self._first_tombstones()
        return Swap(
            retired=tuple(f.facts.path for f in self.sweep_plan.retired),
            added=tuple(NewFile(s.segment_base, s.base_offset, s.facts) for s in self.swept),
            moved=self.sweep_plan.moved,
            first_tombstones={
                h.pass_id: firsts.get(h.pass_id)
                for h in self.plan.state.horizons
                if firsts.get(h.pass_id) != h.first_tombstone
            },
            exact_from=1 + max((m.last_gone for m in self.marks.files.values()), default=-1),
            held_from=self.plan.state.held_from,
            groups_since_ms=self.plan.state.groups_since_ms,
            changes=self._changes()[:_MOST_CHANGES],
        )

    def row(self, common: Common) -> Pass:
        """The pass as its row tells it, if it can be committed."""
        plan, marks, retired = self.plan, self.marks, self.sweep_plan.retired
        removed = books.removed(marks)
        records_in = sum(f.facts.records for f in self.files)
        bytes_in = sum(f.facts.bytes for f in self.files)
        bytes_written = sum(s.facts.bytes for s in self.swept)
        merged = [f for f in retired if not self._has_dead(f)]
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
            bytes_out=bytes_in - sum(f.facts.bytes for f in retired) + bytes_written,
            bytes_read=marks.bytes_read + sum(s.bytes_read for s in self.swept),
            bytes_written=bytes_written,
            files_kept=len(self.files) - len(retired),
            files_rewritten=len(retired) - len(merged),
            files_merged=len(merged),
            files_written=len(self.swept),
            keys=marks.keys,
            map_fill=marks.map_fill,
            shards=marks.shards,
            seconds=common.seconds,
            jobs=common.jobs,
            first_tombstone=self._first_tombstones().get(0),
        )

    def _changes(self) -> tuple[FileChange, ...]:
        """The new files, and what became of those that go."""
        rewrites = zip(self.sweep_plan.rewrites, self.swept, strict=True)
        into = {f.facts.path: new.base_offset for r, new in rewrites for f in r.inputs}
        retired = sorted(self.sweep_plan.retired, key=lambda f: f.base_offset)
        gone = [self._change(f, into.get(f.facts.path)) for f in retired]
        new = [
            FileChange(
                "written",
                s.base_offset,
                s.base_offset + s.facts.last_delta,
                s.facts.records,
                s.facts.bytes,
            )
            for s in self.swept
        ]
        return tuple(new + gone)

    def _change(self, file: LogFile, into: int | None) -> FileChange:
        found = self.marks.files.get(file.facts.path)
        removed = {r: n for r, n in found.removed.items() if n} if found else {}
        return FileChange(
            "emptied" if into is None else "rewritten" if removed else "merged",
            file.base_offset,
            file.last_offset,
            file.facts.records,
            file.facts.bytes,
            removed,
            into,
        )

    def _first_tombstones(self) -> dict[int, int]:
        """The lowest tombstone left of what each pass covered first; 0 is this one."""
        firsts: dict[int, int] = {}
        for marks in self.marks.files.values():
            for pass_id, offset in marks.first_tombstones.items():
                firsts[pass_id] = min(offset, firsts.get(pass_id, offset))
        return firsts

    def _has_dead(self, file: LogFile) -> bool:
        found = self.marks.files.get(file.facts.path)
        return found is not None and found.left < found.records


def covered(plan: Clean, files: Sequence[LogFile], now_ms: int) -> Covered:
    """What the pass covers, as mark needs to know it."""
    return Covered(
        where=plan.state.where,
        files=tuple(files),
        log_start=plan.state.row.log_start,
        dirty_from=plan.start,
        end=plan.end,
        horizons=plan.state.horizons,
        new_horizon=Horizon(0, plan.start, plan.end, plan.horizon_ms, plan.start),
        now_ms=now_ms,
        held_from=plan.state.held_from,
    )
