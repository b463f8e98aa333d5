"""A batch's portion of what has not been read yet."""

from __future__ import annotations

from collections.abc import Sequence

from lastword.log.backlog import Backlog
from lastword.spark.asked import TopicPartition


def portion(backlogs: Sequence[Backlog], most: int) -> dict[TopicPartition, int]:
    """Where a batch of about `most` records ends, each partition in proportion to what it has."""
    sizes = {backlog.where: backlog.records for backlog in backlogs}
    total = sum(sizes.values())
    if total <= most:
        return {backlog.where: backlog.end for backlog in backlogs}
    return {b.where: b.end_of(max(1, most * sizes[b.where] // total)) for b in backlogs}
