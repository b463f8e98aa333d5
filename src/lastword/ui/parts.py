"""What the routes share: the parts of a running page, and how they are reached."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le
from fastapi import Depends, HTTPException, Path, Request

from lastword.cleaner.metrics import PassTotals
from lastword.config import LONG_MAX
from lastword.errors import InvalidTopicError, LastwordError, UnknownTopicError
from lastword.model import Record, valid_topic_name
from lastword.store import Store
from lastword.topic import Topic
from lastword.ui.cleanings import Cleanings
from lastword.ui.counts import Counts
from lastword.ui.guard import Access
from lastword.ui.latest_views import LatestViews
from lastword.ui.scans import Scans
from lastword.ui.scenes import Scenes
from lastword.ui.watch import Watch

PartitionNumber = Annotated[int, Ge(0), Le(10_000)]
Offset = Annotated[int, Ge(0), Le(LONG_MAX)]


@dataclass(frozen=True)
class Parts:
    """The parts of a running page."""

    store: Store
    access: Access
    watch: Watch
    scans: Scans
    counts: Counts
    latest_views: LatestViews
    cleanings: Cleanings
    scenes: Scenes
    totals: PassTotals

    def begin(self) -> None:
        """Make behind the scenes what the first visitor would have to wait for."""
        self.watch.begin()
        threading.Thread(target=self._count_passes, daemon=True).start()

    def _count_passes(self) -> None:
        with suppress(LastwordError):  # who asks for metrics is told
            self.totals.count(self.store.base.catalog)

    def close(self) -> None:
        self.cleanings.close()
        self.scenes.close()


def _parts(request: Request) -> Parts:
    found: Parts = request.app.state.parts
    return found


Ui = Annotated[Parts, Depends(_parts)]


def _topic(ui: Ui, topic: Annotated[str, Path(description="The topic's name.")]) -> Topic:
    try:
        valid_topic_name(topic)
    except InvalidTopicError:
        raise UnknownTopicError(topic[:300]) from None
    return ui.store.topic(topic)


ATopic = Annotated[Topic, Depends(_topic)]


def _record(topic: ATopic, partition: PartitionNumber, offset: Offset) -> Record:
    found = next(iter(topic.read(partition, offset, limit=1)), None)
    if found is None or found.offset != offset:
        _, log_end = topic.offsets()[partition]
        gone = "a pass has removed it" + (", or Kafka had none there" if topic.row.source else "")
        why = gone if offset < log_end else "it is log end"
        raise HTTPException(
            404, f"{topic.name}-{partition} has no record at offset {offset}: {why}"
        )
    return found


ARecord = Annotated[Record, Depends(_record)]
