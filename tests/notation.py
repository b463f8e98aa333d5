"""Logs in one line: `a=1 b=2 | a=3 b=∅ | c=4*`.

Bars stand between segments, ∅ for a tombstone, and a star after the last record says that its
segment is active; without it the log was rolled. `write` makes such a log, `shown` reads it back;
with `offsets=True` each record shows its offset, `0:a=1`.
"""

from __future__ import annotations

import os

from lastword.catalog import queries
from lastword.cleaner.choose import Asked
from lastword.cleaner.run import Cleaner
from lastword.config import LONG_MAX
from lastword.jobs.runner import Runner
from lastword.model import Record
from lastword.passes import Pass
from lastword.store import Store
from lastword.testing import InProcess
from lastword.topic import Topic

TOMBSTONE = "∅"


def write(topic: Topic, text: str, partition: int = 0) -> None:
    """Append the log to a partition, each segment in one append."""
    segments = text.removesuffix("*").split("|")
    for i, segment in enumerate(segments):
        pairs = (word.split("=") for word in segment.split())
        records = [
            Record(key, None if value == TOMBSTONE else value, partition=partition)
            for key, value in pairs
        ]
        topic.append(records)
        if i < len(segments) - 1 or not text.endswith("*"):
            topic.roll(partition)


def shown(topic: Topic, partition: int = 0, *, offsets: bool = False) -> str:
    """The log of a partition."""
    description = topic.describe().partitions[partition]
    segments = []
    for segment in description.segments:
        start = max(segment.base, description.log_start)
        words = [
            _word(record, offsets)
            for record in topic.read(partition, start, segment.last_offset + 1)
        ]
        segments.append(" ".join(words) + ("*" if segment.is_active else ""))
    return " | ".join(segments)


def live_paths(topic: Topic, partition: int = 0) -> list[str]:
    """The paths of the partition's files, in offset order."""
    base = topic._base
    _, files = queries.read_plan(base.catalog, topic.row, partition, (0, LONG_MAX))
    return [file.facts.path for file in files]


def open_files(store: Store) -> list[str]:
    """The files of the store's data that this process has open."""
    links = (os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd"))
    return [link for link in links if link.startswith(os.path.realpath(store.base.root.full("")))]


def _word(record: Record, offsets: bool) -> str:
    key, value = record.key, record.value
    assert isinstance(key, bytes)
    text = TOMBSTONE if value is None else value.decode() if isinstance(value, bytes) else value
    return (f"{record.offset}:" if offsets else "") + f"{key.decode()}={text}"


def cleaned(topic: Topic, partition: int = 0, *, force: bool = True) -> str:
    """Clean the topic, and show the partition's log with offsets."""
    for done in clean(topic, force=force):
        assert done.error is None, done.error
    return shown(topic, partition, offsets=True)


def clean(topic: Topic, *, force: bool = True, runner: Runner | None = None) -> list[Pass]:
    """One round over the topic, in this process."""
    with Cleaner(topic._base, runner or InProcess()) as cleaner:
        return list(cleaner.round([topic.row], Asked(force=force)).passes)
