"""Mark and sweep without Spark: the map, the verdicts, what is rewritten; on random logs too."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastword.cleaner import books, mark, sweep
from lastword.cleaner.covered import Covered
from lastword.cleaner.mark import FileMarks, Marks, MarkTask
from lastword.cleaner.sweep import Rewrite, SweepPlan, SweepTask
from lastword.cleaner.throttle import Throttle
from lastword.config import Compression, topic_config
from lastword.errors import BooksError
from lastword.files import parquet
from lastword.files.parquet import write_file
from lastword.files.reader import FileReader
from lastword.files.root import DataRoot
from lastword.log.offset_map import OffsetMap, Shard
from lastword.model import FileFacts, LogFile
from lastword.passes import REASONS, Horizon
from tests.soak import times

Row = tuple[bytes | None, bytes | None]  # key and value; the offset is its place in the log
NOW = 1_000


def log_files(root: DataRoot, files: list[list[Row]], gap: int = 0) -> list[LogFile]:
    """A log of files, each a segment; `gap` offsets are missing between them."""
    found, base = [], 0
    for rows in files:
        table = pa.table(
            {
                "timestamp": pa.array([NOW] * len(rows), pa.int64()).cast(parquet.TIMESTAMP),
                "key": pa.array([k for k, _ in rows], pa.binary()),
                "value": pa.array([v for _, v in rows], pa.binary()),
                "headers": pa.nulls(len(rows), parquet.HEADERS),
            }
        )
        facts = write_file(root, root.new_path("t", 0, NOW), [table], Compression.LZ4)
        found.append(LogFile("t", 0, base, base, base + len(rows) - 1, facts))
        base += len(rows) + gap
    return found


def covered(files: list[LogFile], dirty_from: int = 0, **more: object) -> Covered:
    end = files[-1].last_offset + 1
    new = Horizon(0, dirty_from, end, NOW + 1, dirty_from)
    options: dict[str, object] = {"horizons": (), "new_horizon": new, "now_ms": NOW} | more
    options = {"log_start": 0, "end": end} | options
    return Covered("t-0", tuple(files), dirty_from=dirty_from, **options)  # type: ignore[arg-type]


def marked(root: DataRoot, what: Covered, map_bytes: int = 1 << 20, shards: int = 1) -> Marks:
    tasks = [MarkTask(what, root, Shard(i, shards), map_bytes, 1e300) for i in range(shards)]
    found = [mark.mark(task) for task in tasks]
    for other in found[1:]:
        found[0] = found[0].and_those(other)
    return found[0]


def survivors(files: list[LogFile], marks: Marks) -> list[int]:
    """The offsets that live, for files without holes."""
    return [
        f.base_offset + int(i)
        for f in files
        for i in np.flatnonzero(~marks.files[f.facts.path].dead)
    ]


@pytest.fixture
def root(tmp_path: Path) -> DataRoot:
    return DataRoot(str(tmp_path / "data"))


class TestOffsetMap:
    def test_what_was_put_is_found(self) -> None:
        offset_map = OffsetMap(1 << 20)
        keys = pa.array([b"a", b"", b"c" * 1000], pa.binary())
        offset_map.put(keys[:2], np.array([3, 5]))
        offset_map.put(keys[2:], np.array([7]))
        asked = pa.array([b"c" * 1000, b"b", None, b"", b"a"], pa.binary())
        assert offset_map.find(asked).tolist() == [7, -1, -1, 5, 3]
        assert len(offset_map) == 3

    def test_keys_are_compared_in_full(self, root: DataRoot) -> None:
        """Two keys with the same hash are two keys, in a map and through shards."""
        from lastword.partitioner import murmur2

        some = np.random.default_rng(1).bytes(12 * 200_000)
        many = [some[i : i + 12] for i in range(0, len(some), 12)]
        hashes = murmur2(pa.array(many, pa.binary()))
        order = np.argsort(hashes, kind="stable")
        twins = np.flatnonzero(np.diff(hashes[order]) == 0)
        a, b = (many[order[twins[0] + i]] for i in (0, 1))
        assert a != b
        offset_map = OffsetMap(1 << 20)
        offset_map.put(pa.array([a], pa.binary()), np.array([1]))
        assert offset_map.find(pa.array([b], pa.binary())).tolist() == [-1]
        files = log_files(root, [[(a, b"1"), (b, b"1"), (a, b"2")]])
        for shards in (1, 3):
            assert survivors(files, marked(root, covered(files), 100, shards)) == [1, 2]

    def test_when_it_is_too_full_it_lets_half_of_the_keys_go(self) -> None:
        offset_map = OffsetMap(10_000)
        keys = pa.array([f"key-{i}".encode() for i in range(1_000)], pa.binary())
        offset_map.put(keys, np.arange(1_000))
        assert offset_map.is_too_full
        shard, let_go = offset_map.split(Shard())
        assert not offset_map.is_too_full
        assert len(offset_map) > 20
        stays = shard.holds(keys)
        assert (offset_map.find(keys) >= 0).tolist() == stays.tolist()
        parts = [shard, *let_go]  # each key in just one of them
        assert np.sum([part.holds(keys) for part in parts], axis=0).tolist() == [1] * 1_000

    def test_one_key_always_fits(self) -> None:
        offset_map = OffsetMap(1)
        offset_map.put(pa.array([b"a"], pa.binary()), np.array([1]))
        assert offset_map.split(Shard(3, 4)) == (Shard(3, 4), [])

    @given(st.sets(st.binary(max_size=9)), st.integers(1, 9))
    def test_shards_share_all_keys_out(self, keys: set[bytes], of: int) -> None:
        array = pa.array(sorted(keys), pa.binary())
        held = [Shard(i, of).holds(array) for i in range(of)]
        assert np.sum(held, axis=0).tolist() == [1] * len(keys)

    def test_shards_are_even_within_a_partition(self) -> None:
        """Keys of one partition agree in murmur2 % partitions; a shard must not see that."""
        from lastword.partitioner import partition_for

        keys = pa.array([f"user-{i}".encode() for i in range(20_000)], pa.binary())
        mine = keys.filter(pa.array(partition_for(keys, 8) == 3))
        for of in (2, 4, 8):
            share = [Shard(i, of).holds(mine).mean() for i in range(of)]
            assert max(share) < 1.3 / of


class TestVerdicts:
    def test_the_last_record_of_each_key_lives(self, root: DataRoot) -> None:
        files = log_files(root, [[(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], [(b"b", b"2")]])
        marks = marked(root, covered(files))
        assert survivors(files, marks) == [2, 3]
        assert books.removed(marks) == {"obsolete": 2, "tombstone": 0, "null key": 0}
        assert marks.keys == 2

    def test_only_the_dirty_section_shadows(self, root: DataRoot) -> None:
        files = log_files(root, [[(b"a", b"1"), (b"a", b"2"), (b"b", b"1")], [(b"b", b"2")]])
        marks = marked(root, covered(files, dirty_from=3))
        assert survivors(files, marks) == [
            0,
            1,
            3,
        ]  # a twice: an earlier pass would have seen to it
        assert marks.keys == 1

    def test_first_dirty_in_the_middle_of_a_file(self, root: DataRoot) -> None:
        files = log_files(root, [[(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1")]])
        marks = marked(root, covered(files, dirty_from=2))
        assert survivors(files, marks) == [1, 2, 3]

    def test_null_keys_go_and_empty_keys_and_values_are_ordinary(self, root: DataRoot) -> None:
        rows: list[Row] = [(None, b"1"), (b"", b"1"), (None, None), (b"", b""), (b"x", b"")]
        files = log_files(root, [rows])
        marks = marked(root, covered(files))
        assert survivors(files, marks) == [3, 4]
        assert books.removed(marks) == {"obsolete": 1, "tombstone": 0, "null key": 2}

    def test_tombstones_by_the_horizon_of_the_pass_that_first_covered_them(
        self, root: DataRoot
    ) -> None:
        files = log_files(root, [[(b"a", None), (b"b", None)], [(b"c", None), (b"d", None)]])
        horizons = (Horizon(1, 0, 2, NOW, 0), Horizon(2, 2, 3, NOW + 1, 2), Horizon(9, 0, 4, 0, 0))
        marks = marked(root, covered(files, dirty_from=4, horizons=horizons))
        assert survivors(files, marks) == [2]
        assert books.removed(marks)["tombstone"] == 3
        assert marks.files[files[1].facts.path].first_tombstones == {2: 2, 9: 2}

    def test_a_dirty_tombstone_always_survives_its_first_pass(self, root: DataRoot) -> None:
        files = log_files(root, [[(b"a", b"1"), (b"a", None)]])
        marks = marked(root, covered(files, horizons=(Horizon(1, 0, 2, 0, 1),)))
        assert survivors(files, marks) == [1]
        assert marks.files[files[0].facts.path].first_tombstones[0] == 1

    def test_what_is_not_covered_is_not_touched(self, root: DataRoot) -> None:
        """A file that reaches beyond the end: no verdict on what lies there, nor by it."""
        rows: list[Row] = [(b"a", b"1"), (b"b", None), (b"a", b"2"), (None, b"x"), (b"b", None)]
        files = log_files(root, [rows])
        what = covered(files, dirty_from=2, end=2, horizons=(Horizon(1, 0, 2, 0, 1),))
        assert survivors(files, marked(root, what)) == [0, 2, 3, 4]

    def test_what_lies_below_log_start_goes(self, root: DataRoot) -> None:
        files = log_files(root, [[(b"a", b"1"), (b"b", b"1"), (None, b"x"), (b"c", b"1")]])
        marks = marked(root, covered(files, dirty_from=3, log_start=3), shards=3)
        assert survivors(files, marks) == [3]
        counts = {"obsolete": 0, "tombstone": 0, "null key": 1, "below log start": 2}
        assert books.removed(marks) == counts

    def test_offsets_so_large_that_their_sum_overflows(self, root: DataRoot) -> None:
        (file,) = log_files(root, [[(b"k%d" % (i % 25), b"v") for i in range(50)]])
        file = replace(file, base_offset=2 * 10**18, last_offset=2 * 10**18 + 49)
        what = covered([file], dirty_from=2 * 10**18)
        marks = marked(root, what)
        swept = sweep.sweep(TestSweep().task(root, [file], marks))
        books.check_swept("t-0", [file], marks, SweepPlan((Rewrite(0, (file,)),)), [swept])

    def test_groups_hold_tombstones_back(self, root: DataRoot) -> None:
        files = log_files(root, [[(b"a", None), (b"b", None)]])
        what = covered(files, dirty_from=2, horizons=(Horizon(1, 0, 2, 0, 0),), held_from=1)
        assert survivors(files, marked(root, what)) == [1]

    def test_without_dirty_records_only_files_with_tombstones_are_read(
        self, root: DataRoot
    ) -> None:
        files = log_files(root, [[(b"a", b"1")], [(b"b", None)]])
        what = covered(files, dirty_from=2, horizons=(Horizon(1, 0, 2, 0, 1),))
        assert list(marked(root, what).files) == [files[1].facts.path]

    def test_a_file_with_other_records_than_the_catalog_says(self, root: DataRoot) -> None:
        (file,) = log_files(root, [[(b"a", b"1")]])
        vars(file.facts)["records"] = 2
        with pytest.raises(BooksError, match="records 1, expected 2"):
            marked(root, covered([file]))


rows = st.tuples(
    st.none() | st.integers(0, 40).map(lambda i: b"k%d" % i), st.none() | st.just(b"v")
)
logs = st.lists(st.lists(rows, min_size=1, max_size=30), min_size=1, max_size=5)


@settings(max_examples=times(250))
@given(logs, st.floats(0, 1), st.booleans(), st.integers(200, 20_000), st.integers(1, 3))
def test_any_log_with_any_map_and_any_shards(
    tmp_path_factory: pytest.TempPathFactory,
    log: list[list[Row]],
    share: float,
    is_expired: bool,
    map_bytes: int,
    shards: int,
) -> None:
    """The survivors are those of ten plain lines, however small the map is."""
    root = _random_root(tmp_path_factory)
    files = log_files(root, log)
    flat = [row for file in log for row in file]
    dirty_from = int(share * len(flat))
    what = covered(
        files,
        dirty_from,
        horizons=(Horizon(1, 0, dirty_from, NOW - is_expired, 0),),
        now_ms=NOW - 1,
    )
    last = {key: i for i, (key, _) in enumerate(flat) if i >= dirty_from}
    expected = [
        i
        for i, (key, value) in enumerate(flat)
        if key is not None
        and i >= last.get(key, -1)
        and not (value is None and i < dirty_from and is_expired)
    ]
    marks = marked(root, what, map_bytes, shards)
    if what.is_dirty or is_expired:
        read = [f for f in files if f.facts.path in marks.files]
        lives = set(survivors(read, marks))
        skipped = {
            i for f in files if f not in read for i in range(f.base_offset, f.last_offset + 1)
        }
        if what.is_dirty:
            assert sorted(lives) == expected
            books.check_marks("t-0", files, marks)
        else:  # null keys of the clean section may be in files that need not be read
            assert [i for i in sorted(lives | skipped) if flat[i][0] is not None] == expected


def _random_root(factory: pytest.TempPathFactory) -> DataRoot:
    """On a memory disk where there is one: a file a log is synced."""
    shm = "/dev/shm" if os.path.isdir("/dev/shm") else str(factory.getbasetemp())
    return DataRoot(f"{shm}/lastword-tests-{os.getpid()}")


@pytest.fixture(autouse=True, scope="module")
def _no_random_roots_left(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    yield
    import shutil

    shutil.rmtree(_random_root(tmp_path_factory).shown, ignore_errors=True)


class TestSweepPlan:
    """Pure: files as (segment base, bytes, records, dead), 100 records a file."""

    MIB = 1 << 20

    def plan(self, *files: tuple[int, int, int]) -> tuple[list[list[int]], list[int], list[int]]:
        """Files as (segment, size, dead of 100), and segment.bytes 16 MiB; by their numbers:
        which are rewritten together, which vanish, which move to another segment."""
        found, marks = [], {}
        for i, (segment, size, dead) in enumerate(files):
            facts = FileFacts(str(i), 100, 99, size, 0, 0, 0, 0, 0)
            found.append(LogFile("t", 0, 100 * segment, 100 * i, 100 * i + 99, facts))
            removed = dict.fromkeys(REASONS, 0) | {"obsolete": dead}
            packed = np.packbits(np.arange(100) < dead)
            if dead:
                marks[str(i)] = FileMarks(100, packed, removed)
        plan = sweep.plan(found, marks, topic_config({"segment.bytes": 16 * self.MIB}))
        return (
            [[int(f.facts.path) for f in r.inputs] for r in plan.rewrites],
            [int(f.facts.path) for f in plan.emptied],
            [int(path) for path in plan.moved],
        )

    def test_files_without_dead_records_stay(self) -> None:
        assert self.plan((0, 16 * self.MIB, 0), (1, 16 * self.MIB, 0)) == ([], [], [])
        assert self.plan((0, 16 * self.MIB, 0), (1, 16 * self.MIB, 1)) == ([[1]], [], [])

    def test_small_neighbours_are_merged(self) -> None:
        assert self.plan((0, 1000, 0), (1, 1000, 0), (2, 1000, 0)) == ([[0, 1, 2]], [], [])

    def test_one_small_file_alone_stays(self) -> None:
        assert self.plan((0, 1000, 0)) == ([], [], [])

    def test_large_files_are_not_copied_to_be_merged(self) -> None:
        assert self.plan((0, 4 * self.MIB, 0), (1, 4 * self.MIB, 0)) == ([], [], [1])

    def test_survivors_are_merged_up_to_a_segment(self) -> None:
        files = [(i, 16 * self.MIB, 50) for i in range(5)]
        assert self.plan(*files) == ([[0, 1], [2, 3], [4]], [], [])

    def test_survivors_are_an_estimate_so_what_is_read_is_bounded_too(self) -> None:
        files = [(i, 15 * self.MIB, 99) for i in range(9)]
        assert self.plan(*files)[0] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]

    def test_files_that_are_all_dead_vanish(self) -> None:
        assert self.plan((0, 1000, 100), (1, 8 * self.MIB, 0)) == ([], [0], [1])
        assert self.plan((0, 1000, 100)) == ([], [0], [])


class TestSweep:
    def task(self, root: DataRoot, files: list[LogFile], marks: Marks) -> SweepTask:
        inputs = tuple((f, marks.files.get(f.facts.path)) for f in files)
        return SweepTask("t", 0, 0, inputs, root, Compression.ZSTD, NOW, 1e300)

    def test_survivors_keep_their_offsets_over_gaps(self, root: DataRoot) -> None:
        log: list[list[Row]] = [[(b"a", b"1"), (b"b", b"1")], [(b"a", b"2")], [(b"c", None)]]
        files = log_files(root, log, gap=10)
        marks = marked(root, covered(files))
        swept = sweep.sweep(self.task(root, files, marks))
        new = LogFile("t", 0, 0, swept.base_offset, 24, swept.facts)
        table = FileReader(root, new).read(0, ["key", "value", "tombstone"])
        assert table["offset"].to_pylist() == [1, 12, 23]
        assert table["key"].to_pylist() == [b"b", b"a", b"c"]
        assert table["tombstone"].to_pylist() == [False, False, True]
        assert swept.offset_sum == 36
        assert swept.facts.tombstones == 1
        plan = SweepPlan((Rewrite(0, tuple(files)),))
        books.check_swept("t-0", files, marks, plan, [swept])

    def test_row_groups_without_survivors_are_not_read(
        self, root: DataRoot, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 10)
        a, b = (b"a", b"1"), (b"b", b"1")
        log: list[list[Row]] = [[*[a] * 30, *[b] * 2]]
        files = log_files(root, log)
        read: list[int] = []
        batches = FileReader.batches

        def noted(self: FileReader, row_group: int) -> object:
            read.append(row_group)
            return batches(self, row_group)

        monkeypatch.setattr(FileReader, "batches", noted)
        swept = sweep.sweep(self.task(root, files, marked(root, covered(files))))
        assert (swept.facts.records, read) == (2, [2, 3])

    def test_a_failure_leaves_no_file(
        self, root: DataRoot, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = log_files(root, [[(b"a", b"1"), (b"a", b"2")]])
        task = self.task(root, files, marked(root, covered(files)))

        def fail(*_: object) -> None:
            raise OSError("gone")

        monkeypatch.setattr(FileReader, "batches", fail)
        with pytest.raises(Exception, match="gone"):
            sweep.sweep(task)
        assert [f.path for f in root.files()] == [files[0].facts.path]


Honest = tuple[list[LogFile], Marks, SweepPlan, sweep.Swept]


class TestBooks:
    """Each lie in the numbers is noticed."""

    @pytest.fixture
    def honest(self, root: DataRoot) -> Honest:
        files = log_files(root, [[(b"a", b"1"), (b"a", b"2"), (b"b", b"1")]])
        marks = marked(root, covered(files))
        swept = sweep.sweep(TestSweep().task(root, files, marks))
        return files, marks, SweepPlan((Rewrite(0, tuple(files)),)), swept

    def test_a_key_whose_last_record_would_go(self, honest: Honest) -> None:
        files, marks, _, _ = honest
        books.check_marks("t-0", files, marks)
        found = marks.files[files[0].facts.path]
        found.removed["obsolete"], found.packed[0] = 2, 0b11000000
        vars(found)["dirty_dead"] = 2
        with pytest.raises(
            BooksError, match="records that live of the cleanable section 1, expected 2"
        ):
            books.check_marks("t-0", files, marks)

    def test_dead_records_that_no_reason_explains(self, honest: Honest) -> None:
        files, marks, _, _ = honest
        marks.files[files[0].facts.path].packed[0] = 0b11000000
        with pytest.raises(BooksError, match="dead records 2, expected 1"):
            books.check_marks("t-0", files, marks)

    @pytest.mark.parametrize(
        ("field", "words"),
        [("records", "records 1, expected 2"), ("sum", "the sum of its offsets 4, expected 3")],
    )
    def test_a_file_that_does_not_hold_the_survivors(
        self, honest: Honest, field: str, words: str
    ) -> None:
        files, marks, plan, swept = honest
        books.check_swept("t-0", files, marks, plan, [swept])
        if field == "records":
            vars(swept.facts)["records"] = 1
        else:
            vars(swept)["offset_sum"] = 4
        with pytest.raises(BooksError, match=words):
            books.check_swept("t-0", files, marks, plan, [swept])

    def test_a_file_that_was_forgotten(self, honest: Honest) -> None:
        files, marks, _, _ = honest
        with pytest.raises(BooksError, match="records out 3, expected 2"):
            books.check_swept("t-0", files, marks, SweepPlan(), [])


def test_the_throttle_sleeps_off_what_is_ahead_of_the_rate() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    throttle = Throttle(100, clock=lambda: now[0], sleep=sleep)
    throttle.used(20)  # less than a third of a second ahead: not worth a sleep
    assert slept == []
    throttle.used(80)
    assert slept == [1.0]
    now[0] += 5
    throttle.used(100)
    assert slept == [1.0]
    assert throttle.bytes == 200


MANY_KEYS = textwrap.dedent(
    """
    import sys
    import numpy as np
    import pyarrow as pa
    from lastword.cleaner.mark import MarkTask, mark
    from lastword.cleaner.covered import Covered
    from lastword.log.offset_map import Shard
    from lastword.config import Compression
    from lastword.files.parquet import HEADERS, TIMESTAMP, write_file
    from lastword.files.root import DataRoot
    from lastword.model import LogFile
    from lastword.passes import Horizon

    def status(name):
        return next(int(l.split()[1]) for l in open("/proc/self/status") if name in l) / 1024

    root, map_bytes, files = DataRoot(sys.argv[1]), int(sys.argv[2]), []
    per_file = 100_000
    for i in range(10):
        numbers = np.arange(i * per_file, (i + 1) * per_file)
        keys = pa.array(np.char.zfill(numbers.astype(str), 16).astype("S16").tolist(), pa.binary())
        table = pa.table({
            "timestamp": pa.array(np.zeros(per_file, np.int64)).cast(TIMESTAMP), "key": keys,
            "value": pa.array([b""] * per_file, pa.binary()), "headers": pa.nulls(per_file, HEADERS),
        })
        facts = write_file(root, root.new_path("t", 0, 0), [table], Compression.LZ4)
        base = i * per_file
        files.append(LogFile("t", 0, base, base, base + per_file - 1, facts))
    del table, keys, numbers

    def marked(files):
        what = Covered("t-0", tuple(files), 0, 0, 10**9, (), Horizon(0, 0, 10**9, 0, 0), 0)
        return mark(MarkTask(what, root, Shard(), map_bytes, 1e300))

    marked(files[:1])  # whatever is loaded and allocated once
    pa.default_memory_pool().release_unused()
    open("/proc/self/clear_refs", "w").write("5")
    before = status("VmRSS")
    marks = marked(files)
    assert marks.keys == 1_000_000, marks.keys
    assert sum(f.dead.sum() for f in marks.files.values()) == 0
    print(marks.shards, round(marks.map_fill, 2), round(status("VmHWM") - before))
    """
)


LARGE_FILE = textwrap.dedent(
    """
    import sys
    import numpy as np
    import pyarrow as pa
    from lastword.cleaner.mark import FileMarks
    from lastword.cleaner.sweep import SweepTask, sweep
    from lastword.config import Compression
    from lastword.files.parquet import HEADERS, TIMESTAMP, write_file
    from lastword.files.root import DataRoot
    from lastword.model import LogFile

    def status(name):
        return next(int(l.split()[1]) for l in open("/proc/self/status") if name in l) / 1024

    root, megabytes = DataRoot(sys.argv[1]), int(sys.argv[2])
    rows = 1 << 10

    def pieces():
        for _ in range(megabytes):
            yield pa.table({
                "timestamp": pa.array(np.zeros(rows, np.int64)).cast(TIMESTAMP),
                "key": pa.array([b"k"] * rows, pa.binary()),
                "value": pa.array([bytes(1 << 10)] * rows, pa.binary()),
                "headers": pa.nulls(rows, HEADERS),
            })

    count = megabytes * rows
    facts = write_file(root, root.new_path("t", 0, 0), pieces(), Compression.UNCOMPRESSED)
    marks = FileMarks(count, np.packbits(np.arange(count) % 2 == 0), {"obsolete": count // 2})
    inputs = ((LogFile("t", 0, 0, 0, count - 1, facts), marks),)
    pa.default_memory_pool().release_unused()
    open("/proc/self/clear_refs", "w").write("5")
    before = status("VmRSS")
    done = sweep(SweepTask("t", 0, 0, inputs, root, Compression.UNCOMPRESSED, 0, 1e300))
    assert done.facts.records == count // 2
    print(round(status("VmHWM") - before))
    """
)


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs Linux's /proc")
def test_sweep_streams(tmp_path: Path) -> None:
    """Its memory is that of some row groups, not of the file."""

    def peak_mb(megabytes: int) -> int:
        done = subprocess.run(
            [sys.executable, "-c", LARGE_FILE, str(tmp_path / "data"), str(megabytes)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return int(done.stdout)

    small, large = peak_mb(64), peak_mb(512)
    assert large < 200, (small, large)
    assert large < 2 * small + 50, (small, large)


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs Linux's /proc")
def test_memory_stays_near_the_bound_however_many_keys(tmp_path: Path) -> None:
    """A million keys take over 100 MB in one map; with 8 MiB for it, far less, in many scans."""

    def peak_mb(map_bytes: int) -> tuple[int, float, int]:
        folder = str(tmp_path / f"data-{map_bytes}")
        done = subprocess.run(
            [sys.executable, "-c", MANY_KEYS, folder, str(map_bytes)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        shards, fill, peak = done.stdout.split()
        return int(shards), float(fill), int(peak)

    one, _, without_bound = peak_mb(1 << 30)
    assert one == 1
    shards, fill, bounded = peak_mb(8 << 20)
    assert shards >= 16
    assert fill <= 1.5  # a batch, half a map at the most, is put before the map is split
    assert bounded < 0.6 * without_bound, (bounded, without_bound)
    assert bounded < 8 + 100, (bounded, without_bound)  # and what reading a file takes
