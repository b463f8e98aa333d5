"""A consumer: the records of some topics, shared with the other members of its group.

At least once: `poll` hands out records, `commit` notes that they are done with. Whoever takes a
partition over, or restarts, goes on from what was committed.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from lastword.catalog import groups, queries
from lastword.errors import (
    CatalogError,
    InvalidArgumentError,
    LastwordError,
    NoOffsetError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    did_you_mean,
)
from lastword.feed import Feed, Lag, lag_of
from lastword.foundation import Foundation
from lastword.model import PartitionRow, Record, TopicRow, valid_group_name, valid_offset
from lastword.sharing import Place

_log = logging.getLogger(__name__)

_HEARTBEAT_MS = 3_000
_IDLE_S = 0.05


class OffsetReset(StrEnum):
    """Where a group starts that has committed nothing, or whose offset is out of range."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


@dataclass(frozen=True)
class ConsumerSettings:
    """Kafka's names, as a consumer has them."""

    auto_offset_reset: OffsetReset
    session_timeout_ms: int
    max_poll_interval_ms: int


class Consumer:
    """A member of a consumer group. Made by `store.consumer`; for one thread; close it when done."""

    def __init__(
        self, base: Foundation, group: str, topics: Sequence[str], settings: ConsumerSettings
    ) -> None:
        if isinstance(topics, str) or not topics:
            raise InvalidArgumentError(f"a consumer takes a list of topics, not {topics!r}")
        if min(settings.session_timeout_ms, settings.max_poll_interval_ms) < 1:
            raise InvalidArgumentError("timeouts of a consumer are 1 ms or more")
        self._base, self.group, self._settings = base, valid_group_name(group), settings
        rows = [queries.topic_named(base.catalog, name) for name in topics]
        self._topics = {row.id: row for row in rows}
        self.member_id = uuid.uuid4().hex
        self._lease = groups.Lease(base.clock, settings.session_timeout_ms)
        self._feeds: dict[Place, Feed] = {}
        self._shared_ms: int | None = None  # when partitions were last shared out
        self._polled_ms = base.clock()
        self._is_lost = False
        self._closed = threading.Event()
        beat_s = min(_HEARTBEAT_MS, settings.session_timeout_ms / 3) / 1000
        heart = (weakref.ref(self), self._closed, beat_s)
        self._heart = threading.Thread(target=_beat, args=heart, daemon=True)
        self._heart.start()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group. What was not committed will be handed out again."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._heart.join()
        for feed in self._feeds.values():
            feed.close()
        with suppress(CatalogError):  # the lease ends by itself
            groups.leave(self._base.catalog, self.group, self.member_id)

    @property
    def assignment(self) -> list[tuple[str, int]]:
        """The partitions that are this member's, as of the last poll."""
        return sorted(feed.where for feed in self._feeds.values())

    def poll(self, max_records: int = 500, timeout_ms: int = 0) -> list[Record]:
        """The next records, in order within a partition; waits for some if there are none."""
        if max_records < 1:
            raise InvalidArgumentError(f"poll hands out 1 record or more, not {max_records}")
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            self._join()
            found = self._take(max_records)
            left = deadline - time.monotonic()
            if found or left <= 0:
                return found
            time.sleep(min(_IDLE_S, left))

    def commit(self, offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Note that all that was polled is done with; or all below {(topic, partition): offset}.

        ConflictError if another member has taken a partition over; nothing is committed then.
        """
        self._refuse_closed()
        if offsets is None:
            done = {p: f.position for p, f in self._feeds.items() if f.position != f.committed}
        else:
            done = self._valid(offsets)
        if not done:
            return
        groups.commit(self._base.catalog, self.group, self.member_id, done, self._base.clock())
        for place, offset in done.items():
            self._feeds[place].committed = offset

    def position(self, topic: str, partition: int) -> int:
        """The offset of the next record to be polled."""
        return self._feed(topic, partition).position

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on from this offset; OffsetOutOfRangeError outside [log start, log end]."""
        feed = self._feed(topic, partition)
        row, _ = queries.read_plan(self._base.catalog, feed.topic, partition, (0, 0))
        if not row.log_start <= valid_offset(offset) <= row.log_end:
            raise OffsetOutOfRangeError(topic, partition, offset, row.log_start, row.log_end)
        feed.go_to(offset)

    def lag(self) -> list[Lag]:
        """How far each partition of this member is behind."""
        self._join()
        return [
            lag_of(self._base, feed.topic, feed.place[1], feed.position)
            for _, feed in sorted(self._feeds.items())
        ]

    def _valid(self, offsets: Mapping[tuple[str, int], int]) -> dict[Place, int]:
        if not isinstance(offsets, Mapping) or not all(
            isinstance(where, tuple) and len(where) == 2 for where in offsets
        ):
            raise InvalidArgumentError(
                f"offsets to commit are {{(topic, partition): offset}}, not {offsets!r:.80}"
            )
        rows, done = self._rows(), {}
        for (topic, partition), offset in offsets.items():
            place = self._feed(topic, partition).place
            row = rows[place]
            if not 0 <= valid_offset(offset) <= row.log_end:
                raise OffsetOutOfRangeError(topic, partition, offset, row.log_start, row.log_end)
            done[place] = offset
        return done

    def _refuse_closed(self) -> None:
        if self._closed.is_set():
            raise InvalidArgumentError("the consumer is closed")

    def _join(self) -> None:
        """Have our share of the partitions; look again now and then, for others come and go."""
        self._refuse_closed()
        now_ms = self._polled_ms = self._base.clock()
        is_due = self._shared_ms is None or now_ms - self._shared_ms >= _HEARTBEAT_MS
        if not is_due and not self._is_lost:
            return
        mine = groups.share(
            self._base.catalog, self.group, self.member_id, self._topics.keys(), self._lease
        )
        self._is_lost = False
        for place in [p for p in self._feeds if p not in mine or mine[p].is_new]:
            self._feeds.pop(place).close()  # another may have gone on with it
        self._start({p: c.committed for p, c in mine.items() if p not in self._feeds})
        self._shared_ms = now_ms

    def _start(self, new: Mapping[Place, int | None]) -> None:
        """Begin to read partitions; where the group starts anew, that is committed at once.

        So the group is known, and holds tombstones back, and a restart starts no later.
        """
        rows = self._rows()
        known = {c.topic for c in groups.committed(self._base.catalog, self.group)}
        starts = {}
        for place, committed in new.items():
            topic = self._topics[place[0]]
            is_known = topic.name in known
            starts[place] = self._first_offset(topic, rows[place], committed, is_known=is_known)
        first = {place: start for place, start in starts.items() if start != new[place]}
        if first:
            now_ms = self._base.clock()
            groups.commit(self._base.catalog, self.group, self.member_id, first, now_ms)
        for place, start in starts.items():
            self._feeds[place] = Feed(self._base, self._topics[place[0]], place, start)

    def _first_offset(
        self, topic: TopicRow, row: PartitionRow, committed: int | None, *, is_known: bool
    ) -> int:
        """Where to start: as committed, else as `auto_offset_reset` says.

        A partition that was added to a topic that the group knows is read from its beginning.
        """
        where, reset = f"{topic.name}-{row.partition}", self._settings.auto_offset_reset
        if committed is not None and row.log_start <= committed <= row.log_end:
            if committed < row.exact_from:
                _log.warning(
                    "group %s: tombstones of %s between offsets %d and %d have gone unread",
                    *(self.group, where, committed, row.exact_from),
                )
            return committed
        if committed is None and reset is OffsetReset.NONE:
            raise NoOffsetError(self.group, where)
        if committed is not None:
            if reset is OffsetReset.NONE:
                bounds = (row.log_start, row.log_end)
                raise OffsetOutOfRangeError(topic.name, row.partition, committed, *bounds)
            _log.warning(
                "group %s: its offset %d of %s is out of range, it goes on at the %s",
                *(self.group, committed, where, reset),
            )
        is_late = reset is OffsetReset.LATEST and not (committed is None and is_known)
        return row.log_end if is_late else row.log_start

    def _take(self, most: int) -> list[Record]:
        """Records of one partition after the other, each in its turn."""
        found: list[Record] = []
        rows: dict[Place, PartitionRow] = {}
        for place in list(self._feeds):
            feed = self._feeds[place]
            try:
                if not feed.is_open:
                    rows = rows or self._rows()
                    feed.open(rows[place].log_end)
                found += feed.take(most - len(found))
            except LastwordError as error:
                if found:  # which are handed out first; the error comes again
                    return found
                if not isinstance(error, OffsetOutOfRangeError):
                    raise
                row = self._rows()[place]  # retention was faster
                feed.go_to(self._first_offset(feed.topic, row, feed.position, is_known=True))
            if len(found) == most:
                break
            self._feeds[place] = self._feeds.pop(place)  # it is the last one's turn now
        return found

    def _rows(self) -> dict[Place, PartitionRow]:
        """All partitions of the topics; UnknownTopicError if a topic was deleted."""
        found = queries.partitions_of(self._base.catalog, list(self._topics.values()))
        for gone in self._topics.keys() - {row.topic_id for row in found}:
            raise UnknownTopicError(self._topics[gone].name)
        return {(row.topic_id, row.partition): row for row in found}

    def _feed(self, topic: str, partition: int) -> Feed:
        self._join()
        for feed in self._feeds.values():
            if feed.where == (topic, partition):
                return feed
        mine = ", ".join(f"{name}-{number}" for name, number in self.assignment) or "none"
        raise InvalidArgumentError(f"{topic}-{partition} is not this member's; its own are: {mine}")

    def _renew(self) -> None:
        """Have the lease a while longer, unless working on records takes too long."""
        now_ms = self._base.clock()
        is_stuck = now_ms - self._polled_ms > self._settings.max_poll_interval_ms
        if self._shared_ms is None or is_stuck:
            return
        if not groups.renew(self._base.catalog, self.group, self.member_id, self._lease):
            self._is_lost = True


def _beat(member: weakref.ref[Consumer], closed: threading.Event, beat_s: float) -> None:
    """Stay a member while records are worked on; one that was dropped unclosed is let go."""
    while not closed.wait(beat_s):
        consumer = member()
        if consumer is None:
            return
        with suppress(CatalogError):
            consumer._renew()
        del consumer


def offset_reset(name: str) -> OffsetReset:
    """The policy of that name."""
    try:
        return OffsetReset(name)
    except ValueError:
        known = [reset.value for reset in OffsetReset]
        raise InvalidArgumentError(
            f"auto_offset_reset is earliest, latest or none, not {name!r}{did_you_mean(name, known)}"
        ) from None
