"""The books of a pass: what went in, what came out, what was removed. They must add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lastword.cleaner.mark import FileMarks, Marks
from lastword.cleaner.sweep import Rewrite, SweepPlan, Swept
from lastword.errors import BooksError
from lastword.model import LogFile
from lastword.passes import REASONS


def removed(marks: Marks) -> dict[str, int]:
    """The records that go, per reason; below log start only where there are any."""
    counts = dict.fromkeys(REASONS, 0)
    for file in marks.files.values():
        for reason, count in file.removed.items():
            if count or reason in counts:
                counts[reason] = counts.get(reason, 0) + count
    return counts


def check_marks(where: str, files: Sequence[LogFile], marks: Marks) -> None:
    """Every record was read once, and the last record of every key lives."""
    for file in files:
        found = marks.files.get(file.facts.path)
        if found is not None:
            _agree(where, f"{file.facts.path}: records read", found.records, file.facts.records)
            dead = int(found.dead.sum())
            _agree(where, f"{file.facts.path}: dead records", dead, sum(found.removed.values()))
    lives = sum(f.dirty - f.dirty_dead for f in marks.files.values())
    _agree(where, "records that live of the cleanable section", lives, marks.keys)


def check_swept(
    where: str,
    files: Sequence[LogFile],
    marks: Marks,
    plan: SweepPlan,
    swept: Sequence[Swept],
) -> None:
    """What was written is what lives, to the offset; and nothing else has gone."""
    for rewrite, new in zip(plan.rewrites, swept, strict=True):
        _check_rewrite(where, rewrite, marks.files, new)
    retired = {f.facts.path for f in plan.retired}
    kept = sum(f.facts.records for f in files if f.facts.path not in retired)
    out = kept + sum(new.facts.records for new in swept)
    left = sum(f.facts.records for f in files) - sum(removed(marks).values())
    _agree(where, "records out", out, left)


def _check_rewrite(
    where: str, rewrite: Rewrite, marks: Mapping[str, FileMarks], new: Swept
) -> None:
    expected = [marks.get(f.facts.path) for f in rewrite.inputs]
    records = sum(
        f.facts.records if m is None else m.left
        for f, m in zip(rewrite.inputs, expected, strict=True)
    )
    _agree(where, f"{new.facts.path}: records", new.facts.records, records)
    known = [m for m in expected if m is not None]
    if len(known) == len(expected):
        offsets = sum(m.offset_sum - m.dead_offset_sum for m in known)  # both wrap at 64 bits
        found, expected_sum = (value % (1 << 64) for value in (new.offset_sum, offsets))
        _agree(where, f"{new.facts.path}: the sum of its offsets", found, expected_sum)


def _agree(where: str, what: str, found: int, expected: int) -> None:
    if found != expected:
        raise BooksError(where, what, found, expected)
