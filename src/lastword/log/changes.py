"""Changes since a position: one record for every key that changed, its last value or its deletion.

Databus called it the consolidated delta. It is exact as long as no tombstone beyond the position has
gone: `exact_from` in the catalog says from where on that holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lastword.errors import (
    InvalidArgumentError,
    MissedTombstonesError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from lastword.foundation import Foundation
from lastword.log.alive import Which
from lastword.log.latest import LastRecords, Moment, Progress, Stretch, moment_of
from lastword.model import TopicRow, valid_offset


class Changes(LastRecords):
    """The last record of every key that changed; a tombstone if it was deleted.

    `is_full`: the positions were too old to know all deletions, so this is the whole current state,
    without tombstones: whatever is not in it is deleted. A key that is in several partitions is
    told of by each.
    """

    is_full = False


def changes(
    base: Foundation,
    topic: TopicRow,
    since: Mapping[int, int],
    *,
    or_full: bool = False,
    columns: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Changes:
    """What changed since these positions; in partitions that they leave out, since the beginning."""
    positions = _valid(since)
    now = moment_of(base, topic, since=positions)
    _refuse_unknown(now, positions)
    missed = [s for s in now.stretches if _has_missed(s, positions)]
    if missed and not or_full:
        row = missed[0].row
        at, exact_from = positions[row.partition], max(row.exact_from, row.log_start)
        raise MissedTombstonesError(f"{topic.name}-{row.partition}", at, exact_from)
    if missed:
        full = Changes(base, moment_of(base, topic), columns, Which.VALUES, progress)
        full.is_full = True
        return full
    stretches = tuple(_from(s, positions) for s in now.stretches)
    return Changes(base, replace(now, stretches=stretches), columns, Which.BOTH, progress)


def _valid(since: object) -> dict[int, int]:
    """The positions, if that is what they are; JSON makes texts of partitions."""
    if not isinstance(since, Mapping):
        raise InvalidArgumentError(f"since is {{partition: offset}}, not {since!r:.80}")
    found = {}
    for number, offset in since.items():
        is_number = isinstance(number, int) or (isinstance(number, str) and number.isdecimal())
        if not is_number:
            raise InvalidArgumentError(
                f"since is {{partition: offset}}; {number!r} is no partition"
            )
        found[int(number)] = valid_offset(offset)
    return found


def _refuse_unknown(now: Moment, positions: Mapping[int, int]) -> None:
    rows = {s.row.partition: s.row for s in now.stretches}
    for number, offset in positions.items():
        if number not in rows:
            raise UnknownTopicError(now.topic.name, number)
        row = rows[number]
        if not 0 <= offset <= row.log_end:
            bounds = (row.log_start, row.log_end)
            raise OffsetOutOfRangeError(now.topic.name, number, offset, *bounds)


def _has_missed(stretch: Stretch, positions: Mapping[int, int]) -> bool:
    """Whether tombstones beyond a position have gone, or records by retention."""
    at = positions.get(stretch.row.partition, 0)
    return 0 < at < max(stretch.row.exact_from, stretch.row.log_start)


def _from(stretch: Stretch, positions: Mapping[int, int]) -> Stretch:
    start = max(stretch.start, positions.get(stretch.row.partition, 0))
    return replace(
        stretch, start=start, files=tuple(f for f in stretch.files if f.last_offset >= start)
    )
