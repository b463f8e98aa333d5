"""What pages and JSON both tell of a topic or a pass, from the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lastword.catalog import cleaning, queries
from lastword.cleaner.overview import Found, TopicOverview, found_now, topic_overview
from lastword.errors import UnknownPassError
from lastword.foundation import Foundation
from lastword.model import TopicRow
from lastword.passes import FileChange, PartitionState, Pass
from lastword.ui.growth import Growth, growth

_GROWTH_PASSES = 300


@dataclass(frozen=True)
class PassAccount:
    """A pass, and what it did with each file that it changed."""

    done: Pass
    files: tuple[FileChange, ...]


def account_of(base: Foundation, pass_id: int) -> PassAccount:
    """A pass; UnknownPassError if there is none."""
    found = cleaning.pass_with_files(base.catalog, pass_id)
    if found is None:
        raise UnknownPassError(pass_id)
    return PassAccount(found[0], tuple(found[1]))


def overview_of(
    base: Foundation, topic: TopicRow, found: Sequence[Found] | None = None
) -> TopicOverview:
    """One topic, now, or as its partitions were found."""
    found = found_now(base, [topic]) if found is None else found
    last = cleaning.passes(base.catalog, [topic.id], limit=1, only_done=True)
    return topic_overview(topic, found, last[0] if last else None, base.clock())


def growth_of(base: Foundation, topic: TopicRow, states: Sequence[PartitionState]) -> Growth:
    """A topic's bytes over time, if these are its partitions now."""
    passes = cleaning.passes(base.catalog, [topic.id], limit=_GROWTH_PASSES, only_done=True)
    partitions = {state.row.partition: state.segments for state in states}
    is_whole = len(passes) < _GROWTH_PASSES
    since_ms = queries.created_ms(base.catalog, topic) if is_whole else None
    return growth(passes, partitions, since_ms, base.clock())
