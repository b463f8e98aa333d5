"""Erase keys: not only deleted, but gone from the disk, with a receipt.

1. tombstones are appended              deleted for readers; run it again to finish
2. passes over the keys' partitions     the values are in retired files only
3. the bytes of retired files go        the values are gone
4. every key is looked up again         the receipt is true
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import sleep

from lastword import garbage
from lastword.catalog import groups, queries, retired
from lastword.cleaner.choose import Asked
from lastword.cleaner.plan import Nothing
from lastword.cleaner.run import Cleaner, Round
from lastword.errors import ConflictError, InvalidArgumentError, PolicyViolationError
from lastword.foundation import Foundation
from lastword.garbage import GarbageFile
from lastword.jobs.runner import Runner
from lastword.log.append import append
from lastword.log.batch import checked
from lastword.log.lookup import Lookup
from lastword.log.records import to_table
from lastword.model import Record, TopicRow
from lastword.passes import Pass
from lastword.words import in_duration

_TRIES = 3
_WAIT_S, _WAITS = 1, 300  # for a cleaner that is at work on a partition

_KeyAt = tuple[int, bytes]  # partition, key


@dataclass(frozen=True)
class Receipt:
    """What an erasure did; with a dry run, what it would do."""

    topic: str
    keys: int  # that were asked for
    found: int  # of which values were there
    not_found: tuple[str, ...]
    records: int  # these values
    tombstones: int  # appended
    files_rewritten: int
    files_deleted: int
    bytes_deleted: int
    passes: tuple[int, ...]
    finished_ms: int
    may_remain: tuple[str, ...]  # where copies may still be
    is_dry_run: bool = False


@dataclass(frozen=True)
class _Found:
    """The versions of the keys, newest first, by partition and key; and the files with values."""

    versions: Mapping[_KeyAt, Sequence[Record]]
    files: frozenset[str]
    folders: frozenset[str]  # of the partitions that may have held the keys

    @property
    def values(self) -> list[Record]:
        return [r for its in self.versions.values() for r in its if r.value is not None]

    @property
    def partitions(self) -> set[int]:
        """Those that hold values."""
        return {r.partition or 0 for r in self.values}

    @property
    def alive(self) -> list[_KeyAt]:
        """Where the last word on a key is a value."""
        return [place for place, its in self.versions.items() if its[0].value is not None]


def erase(
    base: Foundation, topic: TopicRow, keys: Sequence[bytes], runner: Runner, *, dry_run: bool
) -> Receipt:
    """Erase these keys of a topic."""
    if not keys:
        raise InvalidArgumentError("name the keys to erase")
    if not topic.config.is_compact:
        policy = topic.config.policy or "empty"
        raise PolicyViolationError(
            f"topic {topic.name!r} has cleanup.policy={policy}; only topics with 'compact' in it can "
            "erase a key"
        )
    if topic.is_paused:
        raise PolicyViolationError(f"topic {topic.name!r} is paused; resume it to erase a key")
    distinct = list(dict.fromkeys(keys))
    found = _find(base, topic, distinct)
    passes: list[Pass] = []
    deleted: list[GarbageFile] = []
    if not dry_run:
        _bury(base, topic, found)
        passes = _clean(base, topic, found.partitions, runner)
        deleted = _delete(base, found)
        _verify(topic, found, _find(base, topic, distinct))
    keys_found = {r.key for r in found.values}
    return Receipt(
        topic=topic.name,
        keys=len(distinct),
        found=len(keys_found),
        not_found=tuple(
            key.decode(errors="backslashreplace") for key in distinct if key not in keys_found
        ),
        records=len(found.values),
        tombstones=len(found.alive),
        files_rewritten=len(found.files) if dry_run else sum(p.files_rewritten for p in passes),
        files_deleted=len(deleted),
        bytes_deleted=sum(f.bytes for f in deleted),
        passes=tuple(p.id for p in passes),
        finished_ms=base.clock(),
        may_remain=tuple(_remains(base, topic, found)),
        is_dry_run=dry_run,
    )


def _find(base: Foundation, topic: TopicRow, keys: Sequence[bytes]) -> _Found:
    lookup = Lookup(base, topic)
    versions: dict[_KeyAt, list[Record]] = defaultdict(list)
    files, folders = set(), set()
    for key in keys:
        folders |= {base.root.folder(topic.name, n) for n in lookup.partitions_of(key)}
        for file, record in lookup.holding(key):
            versions[record.partition or 0, key].append(record)
            if record.value is not None:
                files.add(file.facts.path)
    return _Found(versions, frozenset(files), frozenset(folders))


def _bury(base: Foundation, topic: TopicRow, found: _Found) -> None:
    """Append a tombstone wherever the last word on a key is a value."""
    now_ms = base.clock()
    tombstones = [Record(key, None, partition=number) for number, key in found.alive]
    if tombstones:
        ready = checked(to_table(tombstones), topic, now_ms, keyless=0)
        append(base.catalog, base.root, [ready], now_ms)


def _clean(base: Foundation, topic: TopicRow, partitions: set[int], runner: Runner) -> list[Pass]:
    """Compact these partitions up to where they end now."""
    goals = {p.partition: p.log_end for p in queries.partitions(base.catalog, topic)}
    done: list[Pass] = []
    failures = waits = 0
    with Cleaner(base, runner) as cleaner:
        while left := _behind(base, topic, partitions, goals):
            asked = Asked(force=True, some=frozenset(left), at_once=True)
            done_now = cleaner.round([topic], asked)
            done += [p for p in done_now.passes if not p.error]
            failures += any(p.error for p in done_now.passes)
            waits += not done_now.passes
            if failures == _TRIES or waits == _WAITS:
                raise ConflictError(
                    f"{topic.name}-{min(left)} was not cleaned: {_reason(done_now)}. The keys are "
                    "deleted, but the bytes of their values are still there: run erase again"
                )
            if not done_now.passes:
                sleep(_WAIT_S)
    return done


def _reason(done: Round) -> str:
    """Why nothing was cleaned."""
    errors = [p.error for p in done.passes if p.error]
    reasons = [d.reason for d in done.decisions if isinstance(d, Nothing)]
    return (errors + reasons + ["another cleaner was faster"])[0]


def _behind(
    base: Foundation, topic: TopicRow, partitions: set[int], goals: Mapping[int, int]
) -> list[int]:
    rows = queries.partitions(base.catalog, topic)
    return [
        r.partition
        for r in rows
        if r.partition in partitions and r.first_dirty < goals[r.partition]
    ]


def _delete(base: Foundation, found: _Found) -> list[GarbageFile]:
    """Delete the bytes of all retired files that may hold a key, whoever may still read them."""
    now_ms = base.clock()
    hastened = retired.hasten(base.catalog, sorted(found.folders), now_ms)
    collected = garbage.collect(base.catalog, base.root, now_ms, orphan_age_ms=None)
    return [file for file in collected if file.path in hastened]


def _verify(topic: TopicRow, before: _Found, after: _Found) -> None:
    """Raise if a value that was there is still there; what was written since is another matter."""
    there = {(r.partition, r.offset) for r in before.values}
    left = [r for r in after.values if (r.partition, r.offset) in there]
    if left:
        raise ConflictError(
            f"topic {topic.name!r}: {len(left)} value(s) are still there, the first at "
            f"{left[0].partition}:{left[0].offset}; run erase again"
        )


def _remains(base: Foundation, topic: TopicRow, found: _Found) -> Iterator[str]:
    """Where copies may still be."""
    if found.versions:
        wait = in_duration(topic.config.delete_retention_ms)
        yield f"tombstones, which hold the keys themselves for {wait} after their first pass"
    known, waiting = queries.known_paths(base.catalog)
    stray = [
        f
        for f in base.root.files()
        if f.path not in known | waiting and f.path.startswith(tuple(found.folders))
    ]
    if stray:
        yield f"{len(stray)} file(s) that no commit took, such as {stray[0].path}; gc deletes them"
    names = groups.readers_of(base.catalog, topic.id)
    if names:
        yield f"whatever these consumer groups keep: {', '.join(names)}"
    yield "snapshots of tables, mirrors, streams' copies, backups, versions kept by the storage"
