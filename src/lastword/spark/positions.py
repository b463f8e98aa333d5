"""From what a query asks for to offsets: topics found, times looked up, losses noticed."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lastword.catalog import queries
from lastword.errors import DataLossError, InvalidArgumentError, UnknownTopicError
from lastword.foundation import Foundation
from lastword.log.read import first_offset_since
from lastword.model import PartitionRow, TopicRow
from lastword.spark.asked import EARLIEST, LATEST, Bound, Reading, Subscription, TopicPartition

Positions = dict[TopicPartition, int]

_log = logging.getLogger("lastword")


@dataclass(frozen=True)
class Place:
    """A partition that a query reads, with its bounds."""

    topic: TopicRow
    row: PartitionRow

    @property
    def key(self) -> TopicPartition:
        return self.topic.name, self.row.partition

    @property
    def where(self) -> str:
        return f"{self.topic.name}-{self.row.partition}"


def topics_of(
    base: Foundation, wanted: Subscription, *, is_running: bool = False
) -> list[TopicRow]:
    """The topics that are subscribed to, as they are now; once a query runs, some may be gone."""
    if wanted.pattern is not None:
        pattern = re.compile(wanted.pattern)
        return [t for t in queries.topics(base.catalog) if pattern.fullmatch(t.name)]
    names = wanted.names or tuple(sorted({topic for topic, _ in wanted.assigned}))
    if is_running:
        return [t for t in queries.topics(base.catalog) if t.name in names]
    found = {name: queries.topic_named(base.catalog, name) for name in names}
    for name, number in sorted(wanted.assigned):
        if not 0 <= number < found[name].partitions:
            raise UnknownTopicError(name, number)
    return list(found.values())


def places(
    topics: Iterable[TopicRow], rows: Iterable[PartitionRow], wanted: Subscription
) -> list[Place]:
    """Their partitions, as far as they are wanted."""
    by_id = {topic.id: topic for topic in topics}
    found = [Place(by_id[row.topic_id], row) for row in rows]
    return [p for p in found if not wanted.assigned or p.key in wanted.assigned]


def subscribed(base: Foundation, wanted: Subscription, *, is_running: bool = False) -> list[Place]:
    """The partitions that are subscribed to, with their bounds of now."""
    topics = topics_of(base, wanted, is_running=is_running)
    return places(topics, queries.partitions_of(base.catalog, topics), wanted)


def starts(base: Foundation, found: Collection[Place], reading: Reading) -> Positions:
    """The offset to start from, for every partition; -1 where that is latest."""
    bound = reading.start
    _refuse_other_partitions(bound, found, "starting")
    positions = {}
    for place in found:
        asked = _asked(bound, place)
        if bound.is_time:
            offset = _offset_since(base, place, asked)
            if offset is None and not reading.no_match_is_latest:
                raise InvalidArgumentError(
                    f"{place.where} has no record as young as {asked}; "
                    "startingOffsetsByTimestampStrategy=latest would start at its end"
                )
            positions[place.key] = LATEST if offset is None else offset
        else:
            positions[place.key] = place.row.log_start if asked == EARLIEST else asked
    return positions


def ends(base: Foundation, found: Collection[Place], reading: Reading) -> Positions:
    """The offset to end before, for every partition."""
    bound = reading.end
    _refuse_other_partitions(bound, found, "ending")
    positions = {}
    for place in found:
        asked = _asked(bound, place)
        offset = _offset_since(base, place, asked) if bound.is_time else asked
        positions[place.key] = place.row.log_end if offset in (None, LATEST) else offset
    return positions


def within(place: Place, start: int, end: int, *, fail: bool) -> tuple[int, int]:
    """The offsets [start, end), if they can still be read; else that is a loss."""
    first, last = place.row.log_start, place.row.log_end
    if start < first:
        lose(place.where, f"offset {start} is below log start, which is {first} now", fail=fail)
    elif max(start, end) > last:
        problem = f"offset {max(start, end)} is beyond log end, which is {last}"
        lose(place.where, f"{problem}: was the topic made anew?", fail=fail)
    elif start > end:
        lose(place.where, f"offset {start} is beyond {end}, where this batch ends", fail=fail)
    return max(start, first), min(end, last)


def lose(where: str, problem: str, *, fail: bool) -> None:
    """Fail because of a loss, or only warn."""
    loss = DataLossError(where, problem)
    if fail:
        raise loss
    _log.warning("%s: %s", where, problem)


def to_json(positions: Positions) -> dict[str, dict[str, int]]:
    """Positions as Kafka's source writes them: {"topic": {"0": 23}}."""
    found: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(positions.items()):
        found.setdefault(topic, {})[str(number)] = offset
    return found


def from_json(offsets: Mapping[str, Any]) -> Positions:
    """The positions that `to_json` wrote."""
    return {(topic, int(n)): at for topic, its in offsets.items() for n, at in its.items()}


def _asked(bound: Bound, place: Place) -> int:
    return bound.at[place.key] if isinstance(bound.at, Mapping) else bound.at


def _offset_since(base: Foundation, place: Place, timestamp_ms: int) -> int | None:
    number = place.row.partition
    found = first_offset_since(base.catalog, base.root, place.topic, number, timestamp_ms)
    return None if found is None or found >= place.row.log_end else found


def _refuse_other_partitions(bound: Bound, found: Collection[Place], side: str) -> None:
    """Raise unless the bound names just these partitions, or holds for all."""
    if not isinstance(bound.at, Mapping):
        return
    if different := set(bound.at) ^ {place.key for place in found}:
        topic, number = min(different)
        fault = (
            "is not among those that are read" if (topic, number) in bound.at else "is not named"
        )
        raise InvalidArgumentError(
            f"the {side} offsets must name every partition that is read, and no other: "
            f"{topic}-{number} {fault}; -1 is latest, -2 earliest"
        )
