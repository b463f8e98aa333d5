"""What a pass would do with records, each or counted, and why: the dry run, from mark's own code."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lastword.catalog import queries
from lastword.catalog.topics import store_settings
from lastword.cleaner.covered import Covered
from lastword.cleaner.mark import Marks, MarkTask, mark
from lastword.cleaner.plan import Clean
from lastword.cleaner.work import covered
from lastword.errors import BrokenFileError, InvalidArgumentError
from lastword.foundation import Foundation
from lastword.log.offset_map import Shard
from lastword.log.scan import Scan, Scanned
from lastword.passes import TOMBSTONE, Horizon
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
    """A verdict for every record that the pass would read, in offset order.

    For looking, not for large topics: the keys of a partition are held in memory.
    """
    what, _, groups = _scanned(base, plan)
    for group in groups:
        reasons = what.reasons(group)
        for i in range(len(group.offsets)):
            reason = next((r for r, goes in reasons.items() if goes[i]), None)
            yield _verdict(plan, what, group, i, reason)


def would_remove(
    base: Foundation, plan: Clean, on_read: Callable[[int], None] = lambda _bytes: None
) -> dict[str, int]:
    """How many records the pass would remove, per reason: mark is run, in this process."""
    _, marks = would_mark(base, plan, on_read)
    return dict(sum((Counter(found.removed) for found in marks.files.values()), Counter()))


def would_mark(
    base: Foundation, plan: Clean, on_read: Callable[[int], None] = lambda _bytes: None
) -> tuple[Covered, Marks]:
    """What mark would find, and in which files: it is run, in this process."""
    map_bytes = store_settings(base.catalog).log_cleaner_dedupe_buffer_size
    while True:
        what = _covered(base, plan)
        try:
            task = MarkTask(what, base.root, Shard(), map_bytes, bytes_per_second=math.inf)
            return what, mark(task, on_read)
        except BrokenFileError as error:
            if queries.is_live(base.catalog, error.name):
                raise  # else a pass has replaced it, and its bytes are gone


def last_offsets(base: Foundation, plan: Clean) -> dict[bytes, int]:
    """The map that the pass would fill: the last offset of each key of the dirty section."""
    return _scanned(base, plan)[1].offset_map.entries()


def _covered(base: Foundation, plan: Clean) -> Covered:
    """The partition as a pass that began now would see it."""
    state = plan.state
    bounds = (state.row.log_start, plan.end)  # what retention would drop first is not covered
    _, files = queries.read_plan(base.catalog, state.topic, state.row.partition, bounds)
    return covered(plan, files, base.clock())


def _scanned(base: Foundation, plan: Clean) -> tuple[Covered, Scan, list[Scanned]]:
    """What the pass would read, in offset order."""
    what = _covered(base, plan)
    scan = Scan(what, base.root, Shard(), _NO_LIMIT)  # newest first
    groups = sorted(scan, key=lambda group: int(group.offsets[0]))
    if scan.let_go:
        raise InvalidArgumentError(
            f"{plan.state.where} has too many keys to show every record's verdict"
        )
    return what, scan, groups


def _verdict(plan: Clean, what: Covered, group: Scanned, i: int, reason: str | None) -> Verdict:
    offset, newer = int(group.offsets[i]), int(group.superseded_by[i])
    sentence = "kept"
    if newer >= 0:
        sentence = f"obsolete, superseded by offset {newer}"
    elif reason is not None and reason != TOMBSTONE:
        sentence = reason
    elif group.is_tombstone[i]:
        at = in_time(_horizon(what, offset).at_ms)
        sentence = f"tombstone until {at}"
        if reason == TOMBSTONE:
            sentence = f"tombstone, past its horizon of {at}"
        elif what.held_from is not None and offset >= what.held_from:
            sentence += f", held back by consumer group {plan.state.positions[0].group!r}"
    state = plan.state
    key = group.keys[i].as_py()
    kept, by = reason is None, newer if newer >= 0 else None
    return Verdict(state.topic.name, state.row.partition, offset, key, kept, sentence, by)


def _horizon(what: Covered, offset: int) -> Horizon:
    """The horizon of a tombstone: the first pass's that covered it."""
    known = (h for h in what.horizons if h.start <= offset < h.end)
    return next(known, what.new_horizon)
