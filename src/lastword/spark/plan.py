"""The plan of a read: which pieces of which files, shared among tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lastword.catalog import queries
from lastword.catalog.topics import store_settings
from lastword.config import LONG_MAX, TimestampType
from lastword.errors import UnknownTopicError
from lastword.foundation import Foundation
from lastword.log.scan import Section
from lastword.model import LogFile, TopicRow
from lastword.spark.asked import LATEST, Reading
from lastword.spark.positions import Place, ends, places, starts, topics_of, within
from lastword.spark.read_task import Latest, ReadTask
from lastword.spark.split import LATEST_TASK_BYTES, TASK_BYTES, pieces_of, split


@dataclass(frozen=True)
class Span:
    """Offsets [start, end) of a partition, and the live files that may hold them."""

    place: Place
    start: int
    end: int
    files: Sequence[LogFile]

    @property
    def section(self) -> Section:
        """The whole partition, as a scan for the latest records needs it."""
        row = self.place.row
        first_dirty = max(row.first_dirty, row.log_start)
        return Section(self.place.where, tuple(self.files), row.log_start, first_dirty, row.log_end)


def batch_spans(base: Foundation, reading: Reading) -> list[Span]:
    """What a batch query reads, at one moment."""
    topics = topics_of(base, reading.subscription)
    logs = queries.whole_logs(base.catalog, topics)
    for topic in topics:
        if topic.id not in {row.topic_id for row, _ in logs}:
            raise UnknownTopicError(topic.name)  # deleted meanwhile
    found = places(topics, [row for row, _ in logs], reading.subscription)
    files = {(row.topic_id, row.partition): its for row, its in logs}
    first, last = starts(base, found, reading), ends(base, found, reading)
    spans = []
    for place in found:
        start = place.row.log_end if first[place.key] == LATEST else first[place.key]
        bounds = within(place, start, last[place.key], fail=reading.fail_on_data_loss)
        spans.append(Span(place, *bounds, files[place.topic.id, place.row.partition]))
    return spans


def share(base: Foundation, spans: Sequence[Span], reading: Reading) -> list[ReadTask]:
    """The tasks that read these spans."""
    pieces = [pieces_of(span.files, span.start, span.end) for span in spans]
    by_place = {span.place.key: span for span in spans}
    tasks = []
    task_bytes = LATEST_TASK_BYTES if reading.is_latest else TASK_BYTES
    if reading.is_ordered:
        task_bytes = LONG_MAX
    for its in split(pieces, task_bytes, reading.min_partitions, reading.max_records):
        span = by_place[its[0].file.topic, its[0].file.partition]
        tasks.append(ReadTask(base.root, its, timestamp_type(span.place.topic)))
    if not reading.is_latest:
        return tasks
    map_bytes = store_settings(base.catalog).log_cleaner_dedupe_buffer_size
    return [
        replace(task, latest=Latest(_from(by_place, task.pieces[0].file), map_bytes))
        for task in tasks
    ]


def timestamp_type(topic: TopicRow) -> int:
    """Kafka's number for the kind of timestamps that a topic has: 0 create, 1 append time."""
    return int(topic.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME)


def _from(spans: dict[tuple[str, int], Span], first: LogFile) -> Section:
    """What decides about the records of a task: its own files and all that are newer."""
    section = spans[first.topic, first.partition].section
    newer = tuple(f for f in section.files if f.last_offset >= first.last_offset)
    return replace(section, files=newer)
