"""Changes since a position: one record for every key that changed, its last value or its deletion.

Databus called it the consolidated delta. It is exact as long as no tombstone beyond the position has
gone: `exact_from` in the catalog says from where on that holds.
"""

from __future__ import annotations

import operator
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
from lastword.log.latest import LastRecords, Progress, Stretch, stretches_of
from lastword.model import TopicRow


class Changes(LastRecords):
    """The last record of every key that changed; a tombstone if it was deleted.

    `is_full`: the positions were too old to know all deletions, so this is the whole current state,
    without tombstones: whatever is not in it is deleted.
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
    if not isinstance(since, Mapping):
        raise InvalidArgumentError(f"since is {{partition: offset}}, not {since!r}")
    now = stretches_of(base, topic, since=since)
    positions = _valid(topic, now, since)
    missed = [s for s in now if _has_missed(s, positions)]
    if missed and not or_full:
        at = missed[0].row
        raise MissedTombstonesError(
            f"{topic.name}-{at.partition}",
            positions[at.partition],
            max(at.exact_from, at.log_start),
        )
    if missed:
        everything = stretches_of(base, topic)
        full = Changes(base, topic, everything, columns, Which.VALUES, progress)
        full.is_full = True
        return full
    return Changes(base, topic, [_from(s, positions) for s in now], columns, Which.BOTH, progress)


def _valid(topic: TopicRow, now: Sequence[Stretch], since: Mapping[int, int]) -> dict[int, int]:
    rows = {s.row.partition: s.row for s in now}
    found = {}
    for number, offset in since.items():
        if number not in rows:
            raise UnknownTopicError(topic.name, number)
        row = rows[number]
        if not 0 <= operator.index(offset) <= row.log_end:
            bounds = (row.log_start, row.log_end)
            raise OffsetOutOfRangeError(topic.name, number, offset, *bounds)
        found[number] = offset
    return found


def _has_missed(stretch: Stretch, positions: Mapping[int, int]) -> bool:
    """Whether tombstones beyond a position have gone, or records by retention."""
    at = positions.get(stretch.row.partition, 0)
    return 0 < at < max(stretch.row.exact_from, stretch.row.log_start)


def _from(stretch: Stretch, positions: Mapping[int, int]) -> Stretch:
    start = max(stretch.start, positions.get(stretch.row.partition, 0))
    return replace(
        stretch, start=start, files=tuple(f for f in stretch.files if f.last_offset >= start)
    )
