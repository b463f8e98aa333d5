"""Check: does the catalog agree with the files, and with itself?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lastword.catalog import queries
from lastword.catalog.engine import Catalog
from lastword.config import LONG_MAX
from lastword.errors import BrokenFileError, UnknownTopicError
from lastword.files.key_index import KeyIndexWriter
from lastword.files.parquet import tombstones_in
from lastword.files.reader import FileReader
from lastword.files.root import DataRoot, StoredFile
from lastword.garbage import ORPHAN_AGE_MS
from lastword.model import LogFile, PartitionRow

Progress = Callable[[int], None]  # called with the bytes of each file that was checked


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong."""

    kind: str  # missing, corrupt, wrong count, offsets, orphan
    where: str  # partition, or path
    detail: str


@dataclass(frozen=True)
class Report:
    """What was looked at, and what is wrong with it."""

    topics: int
    files: int
    records: int
    bytes: int
    staged: int  # young files that no commit has taken yet: appends under way
    problems: tuple[Problem, ...]

    @property
    def is_clean(self) -> bool:
        return not self.problems


def check(
    catalog: Catalog,
    root: DataRoot,
    now_ms: int,
    *,
    quick: bool = False,
    progress: Progress = lambda _: None,
    orphan_age_ms: int = ORPHAN_AGE_MS,
) -> Report:
    """Walk all topics. `quick`: sizes and offsets only, without reading the records."""
    stored = {f.path: f for f in root.files()}
    problems: list[Problem] = []
    files: list[LogFile] = []
    topics = queries.topics(catalog)
    for topic in topics:
        for number in range(topic.partitions):
            try:
                partition, live = queries.read_plan(catalog, topic, number, (0, LONG_MAX))
            except UnknownTopicError:
                continue  # deleted meanwhile
            problems += _offsets(f"{topic.name}-{number}", partition, live)
            for file in live:
                problems += _still_live(catalog, file, _file(root, stored, file, quick))
                progress(file.facts.bytes)
            files += live
    unknown = [f for f in _unknown(catalog, stored) if root.size(f.path) is not None]
    old = [f for f in unknown if f.created_ms is None or f.created_ms <= now_ms - orphan_age_ms]
    problems += [_orphan(f) for f in old]
    return Report(
        topics=len(topics),
        files=len(files),
        records=sum(f.facts.records for f in files),
        bytes=sum(f.facts.bytes for f in files),
        staged=len(unknown) - len(old),
        problems=tuple(problems),
    )


def _offsets(where: str, p: PartitionRow, live: Sequence[LogFile]) -> Iterator[Problem]:
    """What the rows of a partition say that cannot be."""

    def wrong(detail: str) -> Problem:
        return Problem("offsets", where, detail)

    if not 0 <= p.log_start <= p.first_dirty <= p.log_end or p.active_base > p.log_end:
        yield wrong(
            f"log start {p.log_start}, first dirty {p.first_dirty}, "
            f"active segment {p.active_base}, log end {p.log_end}"
        )
    for file in live:
        in_order = file.segment_base <= file.base_offset <= file.last_offset
        if not in_order or not p.log_start <= file.last_offset < p.log_end:
            yield wrong(
                f"{file.facts.path}: segment {file.segment_base}, offsets {file.base_offset} to "
                f"{file.last_offset}, in a log from {p.log_start} to {p.log_end}"
            )
        if file.segment_base > p.active_base:
            yield wrong(f"{file.facts.path}: segment {file.segment_base} is after the active one")
    for before, after in pairwise(live):
        if after.base_offset <= before.last_offset or after.segment_base < before.segment_base:
            yield wrong(
                f"{before.facts.path} (to offset {before.last_offset}) and {after.facts.path} "
                f"(from {after.base_offset}) overlap"
            )
    gaps = _gaps(p, live) if p.mirrored_ms is None else []  # Kafka may have compacted a mirror's
    for first, end in gaps:
        yield wrong(f"no file holds offsets {first} to {end - 1}, which no pass has covered")


def _gaps(p: PartitionRow, live: Sequence[LogFile]) -> Iterator[tuple[int, int]]:
    """Offsets that no file covers. Below first dirty that is a pass's work; above, a loss."""
    covered = p.first_dirty
    for file in live:
        if file.base_offset > covered:
            yield covered, file.base_offset
        covered = max(covered, file.last_offset + 1)
    if covered < p.log_end:
        yield covered, p.log_end


def _file(
    root: DataRoot, stored: dict[str, StoredFile], file: LogFile, quick: bool
) -> Iterator[Problem]:
    path = file.facts.path
    found = stored[path].bytes if path in stored else None
    if found != file.facts.bytes:  # it may have been written, or finished, since it was listed
        found = root.size(path)
    if found is None:
        yield Problem(
            "missing", file.where, f"{path}, offsets {file.base_offset} to {file.last_offset}"
        )
    elif found != file.facts.bytes:
        yield Problem(
            "corrupt", file.where, f"{path} has {found} bytes, the catalog says {file.facts.bytes}"
        )
    elif not quick:
        try:
            yield from _records(FileReader(root, file))
        except BrokenFileError as error:
            yield Problem("corrupt", file.where, f"{path} {error.problem}")


def _records(reader: FileReader) -> Iterator[Problem]:
    """Read it all, and count."""
    file, facts = reader.file, reader.file.facts
    records = tombstones = null_keys = 0
    max_ms, last = -1, file.base_offset - 1
    in_order = honest = True
    keys = KeyIndexWriter()
    for row_group in reader.row_groups(0, LONG_MAX):
        table = reader.read(row_group, ["timestamp", "tombstone", "key", "value", "headers"])
        offsets = table["offset"].to_numpy()
        in_order &= bool(np.all(np.diff(offsets, prepend=last) > 0))
        last = int(offsets[-1])
        honest &= tombstones_in(table).equals(table["tombstone"])
        records += table.num_rows
        keys.add(table["key"])
        tombstones += pc.sum(table["tombstone"]).as_py()
        null_keys += table["key"].null_count
        max_ms = max(max_ms, pc.max(table["timestamp"].cast(pa.int64())).as_py())
    for what, found, said in (
        ("records", records, facts.records),
        ("last offset", last, file.last_offset),
        ("tombstones", tombstones, facts.tombstones),
        ("null keys", null_keys, facts.null_keys),
        ("max timestamp", max_ms, facts.max_ms),
    ):
        if found != said:
            detail = f"{facts.path}: {what} {found}, the catalog says {said}"
            yield Problem("wrong count", file.where, detail)
    if not in_order:
        yield Problem("corrupt", file.where, f"{facts.path}: its offsets do not grow")
    if not np.array_equal(reader.indexed(), keys.entries()):
        yield Problem("corrupt", file.where, f"{facts.path}: its key index differs from its keys")
    if not honest:
        yield Problem("corrupt", file.where, f"{facts.path}: tombstones and null values differ")


def _still_live(catalog: Catalog, file: LogFile, problems: Iterator[Problem]) -> list[Problem]:
    found = list(problems)
    return found if found and queries.is_live(catalog, file.facts.path) else []


def _unknown(catalog: Catalog, stored: dict[str, StoredFile]) -> list[StoredFile]:
    known, retired = queries.known_paths(catalog)
    return [f for path, f in sorted(stored.items()) if path not in known and path not in retired]


def _orphan(file: StoredFile) -> Problem:
    if file.created_ms is None:
        return Problem("orphan", file.path, "is no file of lastword's; move it elsewhere")
    return Problem("orphan", file.path, "belongs to no commit; 'lastword gc' deletes it")
