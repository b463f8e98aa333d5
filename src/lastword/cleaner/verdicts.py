"""What a pass would do with each record, and why: the dry run, from mark's own code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lastword.catalog import queries
from lastword.cleaner.offset_map import Shard
from lastword.cleaner.plan import Clean
from lastword.cleaner.run import covered
from lastword.cleaner.scan import Covered, Scan, Verdicts
from lastword.cleaner.throttle import Throttle
from lastword.foundation import Foundation
from lastword.passes import NULL_KEY, TOMBSTONE, Horizon
from lastword.words import in_time

_NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class Verdict:
    """One record's."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    is_kept: bool
    sentence: str
    superseded_by: int | None = None


def verdicts(base: Foundation, plan: Clean) -> Iterator[Verdict]:
    """A verdict for every record that the pass would cover, in offset order."""
    state = plan.state
    _, files = queries.read_plan(base.catalog, state.topic, state.row.partition, (0, plan.end))
    what = covered(plan, files, base.clock())
    scan = Scan(what, base.root, Shard(), _NO_LIMIT, Throttle(_NO_LIMIT))  # newest first
    for group in sorted(scan, key=lambda group: int(group.offsets[0])):
        for i in range(len(group.offsets)):
            yield _verdict(plan, what, group, i)


def _verdict(plan: Clean, what: Covered, group: Verdicts, i: int) -> Verdict:
    reason = next((r for r, goes in group.reasons.items() if goes[i]), None)
    offset, newer = int(group.offsets[i]), int(group.superseded_by[i])
    sentence = "kept"
    if newer >= 0:
        sentence = f"obsolete, superseded by offset {newer}"
    elif reason == NULL_KEY:
        sentence = "null key"
    elif group.is_tombstone[i]:
        until = in_time(_horizon(what, offset).at_ms)
        sentence = f"tombstone until {until}"
        if reason != TOMBSTONE and what.held_from is not None and offset >= what.held_from:
            sentence += f", held back by consumer group {plan.state.held_by!r}"
    state = plan.state
    key = group.keys[i].as_py()
    kept, by = reason is None, newer if newer >= 0 else None
    return Verdict(state.topic.name, state.row.partition, offset, key, kept, sentence, by)


def _horizon(what: Covered, offset: int) -> Horizon:
    """The horizon of a tombstone: the first pass's that covered it."""
    known = (h for h in what.horizons if h.start <= offset < h.end)
    return next(known, what.new_horizon)
