"""Retention, garbage and check, on every file system."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import insert, select, update

from lastword import retention
from lastword.catalog import schema
from lastword.config import topic_config
from lastword.errors import (
    BrokenFileError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    StorageError,
)
from lastword.files.root import DataRoot, StoredFile
from lastword.log import read as log_read
from lastword.model import Segment, TopicRow
from lastword.retention import Expire
from lastword.store import Store
from lastword.testing import ManualClock
from lastword.topic import Topic
from tests.notation import live_paths, shown, write

HOUR_MS = 3_600_000


class TestRetentionPlan:
    """Pure: segments as (bytes, newest record), oldest first; how many go."""

    @staticmethod
    def plan(segments: list[tuple[int, int]], now_ms: int, **config: object) -> Expire | None:
        settings = {"cleanup.policy": "delete", "retention.ms": -1}
        settings |= {key.replace("_", "."): value for key, value in config.items()}
        rows = [
            Segment(10 * i, 10 * i + 9, 1, 10, size, 0, max_ms, max_ms, i == len(segments) - 1)
            for i, (size, max_ms) in enumerate(segments)
        ]
        topic = TopicRow(1, "t", 1, topic_config(settings))
        return retention.plan(topic, 0, rows, now_ms)

    def log_start(self, segments: list[tuple[int, int]], **config: object) -> int:
        planned = self.plan(segments, 1000, **config)
        return planned.log_start if planned else 0

    def test_by_time_strictly_older(self) -> None:
        segments = [(1, 100), (1, 900), (1, 901)]
        assert self.log_start(segments, retention_ms=901) == 0
        assert self.log_start(segments, retention_ms=900) == 0
        assert self.log_start(segments, retention_ms=899) == 10
        assert self.log_start(segments, retention_ms=99) == 20
        assert self.log_start(segments, retention_ms=98) == 30  # the active one too: log end

    def test_the_first_that_stays_ends_it(self) -> None:
        assert self.log_start([(1, 950), (1, 100), (1, 960)], retention_ms=100) == 0

    def test_by_size_what_is_left_is_still_that_much(self) -> None:
        segments = [(100, 0), (50, 0), (100, 0)]
        for limit, log_start in ((250, 0), (151, 0), (150, 10), (101, 10), (100, 20), (0, 30)):
            assert self.log_start(segments, retention_bytes=limit) == log_start

    def test_size_first_then_time_and_both_are_said(self) -> None:
        planned = self.plan(
            [(100, 0), (50, 0), (100, 990)], 1000, retention_ms=100, retention_bytes=150
        )
        assert planned == Expire(
            "t", 0, 20, 2, 20, 150, "1 over retention.bytes=150, 1 older than retention.ms=100"
        )

    def test_never_without_the_policy(self) -> None:
        for policy in ("compact", ""):
            assert self.plan([(9, 0), (9, 0)], 1000, retention_ms=0, cleanup_policy=policy) is None
        assert (
            self.plan([(9, 0)], 1000, retention_ms=0, cleanup_policy="compact,delete") is not None
        )

    def test_an_empty_log(self) -> None:
        assert self.plan([], 1000, retention_ms=0, retention_bytes=0) is None


def _deleting(store: Store, **config: object) -> Topic:
    settings = {"cleanup.policy": "delete", "retention.ms": HOUR_MS}
    return store.create_topic(
        "t", config={**settings, **{k.replace("_", "."): v for k, v in config.items()}}
    )


class TestRetention:
    def test_old_segments_go(self, any_data: Store, clock: ManualClock) -> None:
        topic = _deleting(any_data)
        write(topic, "a=1 | b=2")
        clock.advance(HOUR_MS)
        write(topic, "c=3 | d=4*")
        assert any_data.expire() == []
        clock.advance(1)
        assert any_data.expire(dry_run=True)[0].log_start == 2
        assert topic.offsets() == {0: (0, 4)}
        assert [e.segments for e in any_data.expire("t")] == [2]
        assert topic.offsets() == {0: (2, 4)}
        assert shown(topic, offsets=True) == "2:c=3 | 3:d=4*"
        assert any_data.expire() == []

    def test_all_may_go_and_offsets_go_on(self, any_data: Store, clock: ManualClock) -> None:
        topic = _deleting(any_data)
        write(topic, "a=1 | b=2*")
        clock.advance(HOUR_MS + 1)
        any_data.expire()
        assert topic.offsets() == {0: (2, 2)}
        assert list(topic.read(0)) == []
        write(topic, "c=3*")
        assert shown(topic, offsets=True) == "2:c=3*"
        assert any_data.check().is_clean

    def test_a_compacted_topic_keeps_all(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", config={"retention.ms": 1})
        write(topic, "a=1 | b=2 | c=3*")
        clock.advance(15_000)
        assert local.expire() == []
        assert shown(topic) == "a=1 | b=2 | c=3*"

    def test_records_appended_in_the_middle_of_it_stay(
        self, local: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = _deleting(local)
        write(topic, "a=1 | b=2*")
        clock.advance(HOUR_MS + 1)
        plan = retention.plan

        def plan_then_append(*args: Any) -> Expire | None:
            planned = plan(*args)
            topic.append([("c", "3")])
            return planned

        monkeypatch.setattr(retention, "plan", plan_then_append)
        local.expire()
        assert shown(topic, offsets=True) == "2:c=3*"

    def test_a_topic_deleted_in_the_middle_of_it_does_not_stop_it(
        self, local: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("a", "b", "c"):
            config = {"cleanup.policy": "delete", "retention.ms": 0}
            write(local.create_topic(name, config=config), "k=1*")
        clock.advance(1)
        plan = retention.plan

        def plan_then_change(topic: TopicRow, *args: Any) -> Expire | None:
            planned = plan(topic, *args)
            if topic.name == "a":
                local.topic("a").delete()
            if topic.name == "b":
                local.topic("b").alter({"cleanup.policy": "compact"})
            return planned

        monkeypatch.setattr(retention, "plan", plan_then_change)
        assert [e.topic for e in local.expire()] == ["c"]
        assert local.topic("b").offsets() == {0: (0, 1)}

    def test_first_dirty_follows_log_start(self, local: Store) -> None:
        topic = _deleting(local)
        write(topic, "a=1 b=2 | c=3*")
        topic.delete_records(0, 2)
        assert topic.describe().partitions[0].first_dirty == 2


class TestDeleteRecords:
    def test_it_raises_log_start_and_retires_what_lies_below(self, any_data: Store) -> None:
        topic = _deleting(any_data)
        write(topic, "a=0 b=1 | c=2 d=3 | e=4*")
        assert topic.delete_records(0, 3, dry_run=True) == 3
        assert topic.offsets() == {0: (0, 5)}
        assert topic.delete_records(0, 3) == 3
        assert shown(topic, offsets=True) == "3:d=3 | 4:e=4*"
        assert len(live_paths(topic)) == 2
        assert topic.delete_records(0, 1) == 3  # never back
        assert topic.delete_records(0, -1) == 5
        assert topic.offsets() == {0: (5, 5)}

    def test_it_needs_the_delete_policy(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1*")
        with pytest.raises(PolicyViolationError, match="cleanup.policy=compact; delete_records"):
            topic.delete_records(0, 1)

    def test_it_stays_within_the_log(self, local: Store) -> None:
        topic = _deleting(local)
        write(topic, "a=1*")
        with pytest.raises(OffsetOutOfRangeError, match="offset 2 is beyond log end"):
            topic.delete_records(0, 2)
        with pytest.raises(OffsetOutOfRangeError, match="offset -2 is below"):
            topic.delete_records(0, -2)


class TestGarbage:
    def test_bytes_go_when_their_grace_is_over(self, any_data: Store, clock: ManualClock) -> None:
        topic = _deleting(any_data, file_delete_delay_ms=500)
        write(topic, "a=1 | b=2*")
        old = live_paths(topic)[0]
        topic.delete_records(0, 1)
        clock.advance(499)
        assert any_data.gc() == []
        clock.advance(1)
        assert [(f.kind, f.path) for f in any_data.gc(dry_run=True)] == [("retired", old)]
        assert len(list(any_data.base.root.files())) == 2
        assert [f.path for f in any_data.gc()] == [old]
        assert [f.path for f in any_data.base.root.files()] == live_paths(topic)
        assert any_data.gc() == []
        assert any_data.check().is_clean

    def test_a_deleted_topics_files_go_too(self, any_data: Store, clock: ManualClock) -> None:
        topic = any_data.create_topic("t")
        write(topic, "a=1 | b=2*")
        topic.delete()
        assert any_data.gc() == []
        assert any_data.check().is_clean
        clock.advance(HOUR_MS)
        assert len(any_data.gc()) == 2
        assert list(any_data.base.root.files()) == []

    def test_orphans_go_when_they_are_old(self, any_data: Store, clock: ManualClock) -> None:
        orphan = _orphan(any_data, clock)
        assert any_data.gc() == []
        assert any_data.check().staged == 1
        assert any_data.check().is_clean
        clock.advance(24 * HOUR_MS)
        assert [p.kind for p in any_data.check().problems] == ["orphan"]
        assert [(f.kind, f.path) for f in any_data.gc()] == [("orphan", orphan)]
        assert any_data.check().is_clean
        assert list(any_data.base.root.files()) == []

    def test_files_of_others_are_left_alone(self, local: Store, clock: ManualClock) -> None:
        stranger = Path(local.base.root.full("t/0/notes.txt"))
        stranger.parent.mkdir(parents=True)
        stranger.write_text("mine")
        clock.advance(100 * HOUR_MS)
        assert local.gc(orphan_age_ms=0) == []
        assert [p.detail for p in local.check().problems] == [
            "is no file of lastword's; move it elsewhere"
        ]

    def test_died_between_deleting_bytes_and_forgetting_rows(
        self, local: Store, clock: ManualClock
    ) -> None:
        topic = _deleting(local, file_delete_delay_ms=0)
        write(topic, "a=1 | b=2*")
        old = live_paths(topic)[0]
        topic.delete_records(0, 1)
        os.remove(local.base.root.full(old))
        assert [f.path for f in local.gc()] == [old]
        with local.base.catalog.read() as tx:
            assert tx.execute(select(schema.retired_file)).all() == []
            assert len(tx.execute(select(schema.file)).all()) == 1


def _orphan(store: Store, clock: ManualClock) -> str:
    path = store.base.root.new_path("t", 0, clock())
    with store.base.root.create(path) as sink:
        sink.write(b"half a file")
    return path


class TestSlowReaders:
    """Files that retire, and vanish, under a reader that has planned them."""

    @pytest.fixture
    def pages_of_two_files(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log_read, "_PAGE_FILES", 2)

    def test_replaced_files_are_planned_again(
        self, any_data: Store, pages_of_two_files: None
    ) -> None:
        topic = any_data.create_topic("t")
        write(topic, "a=0 b=1 | c=2 d=3 | e=4 f=5*")
        seen = []
        for record in topic.read(0):
            seen.append(record.offset)
            if record.offset == 1:
                _replace_all(any_data, topic)
        assert seen == [0, 1, 2, 3, 4, 5]
        assert shown(topic, offsets=True) == "0:a=0 1:b=1 | 2:c=2 3:d=3 | 4:e=4 5:f=5*"

    def test_files_that_vanish_within_a_page(self, any_data: Store) -> None:
        topic = any_data.create_topic("t")
        write(topic, " | ".join(f"k={i}" for i in range(20)) + "*")
        seen = []
        for record in topic.read(0):
            seen.append(record.offset)
            if record.offset == 0:
                _replace_all(any_data, topic)
        assert seen == list(range(20))

    def test_a_log_start_that_overtook_the_reader_is_said(
        self, local: Store, pages_of_two_files: None
    ) -> None:
        topic = _deleting(local, file_delete_delay_ms=0)
        write(topic, "a=0 | b=1 | c=2 | d=3 | e=4*")
        reader = iter(topic.read(0))
        assert next(reader).offset == 0
        topic.delete_records(0, 4)
        local.gc()
        with pytest.raises(OffsetOutOfRangeError, match="valid positions are 4 to 5"):
            list(reader)

    def test_a_reader_from_the_start_follows_log_start_until_it_begins(self, local: Store) -> None:
        topic = _deleting(local)
        write(topic, "a=0 | b=1 | c=2*")
        from_start, from_zero = topic.read(0), topic.read(0, start=0)
        topic.delete_records(0, 2)
        assert [r.offset for r in from_start] == [2]
        with pytest.raises(OffsetOutOfRangeError):
            list(from_zero)


def _replace_all(store: Store, topic: Topic) -> None:
    """What a pass will do: every file in new bytes under a new name, the old one gone."""
    with store.base.catalog.write() as tx:
        rows = tx.execute(select(schema.file)).all()
        for row in rows:
            values = dict(row._mapping)
            values["path"] = store.base.root.new_path("t", 0, 1)
            with store.base.root.create(values["path"]) as sink:
                sink.write(store.base.root.open(row.path).read())
            tx.execute(schema.file.delete().where(schema.file.c.id == row.id))
            tx.execute(insert(schema.file).values(**values))
    store.base.root.delete([row.path for row in rows])


class TestBrokenFiles:
    def test_a_missing_file_is_named(self, any_data: Store) -> None:
        topic = any_data.create_topic("t")
        write(topic, "a=0 b=1 | c=2*")
        path = live_paths(topic)[0]
        any_data.base.root.delete([path])
        with pytest.raises(
            BrokenFileError, match=rf"{path} \(t-0, offsets 0 to 1\) is missing; 'lastword check'"
        ) as error:
            list(topic.read(0))
        assert error.value.offsets == (0, 1)
        assert [r.offset for r in topic.read(0, start=2)] == [2]
        assert [p.kind for p in any_data.check().problems] == ["missing"]

    def test_what_lies_before_it_is_read_first(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=0 | b=1 | c=2 | d=3*")
        local.base.root.delete(live_paths(topic)[3:])
        reader, seen = iter(topic.read(0)), []
        with pytest.raises(BrokenFileError, match="offsets 3 to 3"):  # noqa: PT012
            while True:
                seen.append(next(reader).offset)
        assert seen == [0, 1, 2]

    def test_a_network_error_is_no_corruption(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = local.create_topic("t")
        write(topic, "a=0*")

        def time_out(*_: object) -> None:
            raise OSError("When reading bytes: AWS Error NETWORK_CONNECTION: timed out")

        monkeypatch.setattr(DataRoot, "open", time_out)
        with pytest.raises(StorageError, match="NETWORK_CONNECTION"):
            list(topic.read(0))

    @pytest.mark.parametrize("at", [0.1, 0.3, 0.5, 0.7, 0.9, 0.999])
    def test_a_flipped_bit_is_never_a_wrong_record(self, local: Store, at: float) -> None:
        """Wherever it is: in a page, in a page's header, or in the footer."""
        topic = local.create_topic("t")
        topic.append([(f"key-{i}", f"value {i}" * 5) for i in range(300)])
        written = list(topic.read(0))
        path = Path(local.base.root.full(live_paths(topic)[0]))
        content = bytearray(path.read_bytes())
        content[int(at * len(content))] ^= 1
        path.write_bytes(content)

        def look() -> None:
            assert list(topic.read(0)) == written  # unless it is in the index, for look-ups
            for i in range(300):
                assert topic.get(f"key-{i}").offset == i

        with pytest.raises(BrokenFileError, match="is corrupt"):
            look()
        assert [p.kind for p in local.check().problems] == ["corrupt"]
        assert local.check(quick=True).is_clean

    @pytest.mark.parametrize("size", [0, 5, 500])
    def test_a_file_that_was_cut(self, local: Store, size: int) -> None:
        topic = local.create_topic("t")
        write(topic, "a=0 b=1*")
        path = local.base.root.full(live_paths(topic)[0])
        os.truncate(path, size)
        with pytest.raises(BrokenFileError, match=f"has {size} bytes, the catalog says"):
            list(topic.read(0))
        assert [p.kind for p in local.check(quick=True).problems] == ["corrupt"]


class TestCheck:
    def test_a_sound_store(self, any_data: Store) -> None:
        write(any_data.create_topic("t"), "a=1 b=2 | a=∅*")
        report = any_data.check()
        assert (report.topics, report.files, report.records) == (1, 2, 3)
        assert report.is_clean

    @pytest.mark.parametrize(
        ("column", "value", "problem"),
        [
            ("tombstones", 5, "tombstones 1, the catalog says 5"),
            ("null_keys", 1, "null keys 0, the catalog says 1"),
            ("max_ms", 7, "max timestamp 1700000000000, the catalog says 7"),
            ("records", 9, "records 3, the catalog says 9"),
            ("last_offset", 1, "last offset 2, the catalog says 1"),
        ],
    )
    def test_wrong_counts(self, local: Store, column: str, value: int, problem: str) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 b=2 c=∅*")
        with local.base.catalog.write() as tx:
            tx.execute(update(schema.file).values({column: value}))
        wrong = [p for p in local.check().problems if p.kind == "wrong count"]
        assert [p.detail.partition(".parquet: ")[2] for p in wrong] == [problem]

    def test_offsets_that_overlap_or_leave_the_log(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 b=2 | c=3*")
        with local.base.catalog.write() as tx:
            second = schema.file.c.base_offset == 2
            tx.execute(update(schema.file).where(second).values(base_offset=1, last_offset=7))
        kinds = [(p.kind, p.where) for p in local.check(quick=True).problems]
        assert kinds == [("offsets", "t-0")] * 2  # leaves segment and log; overlap

    def test_bounds_of_a_partition(self, local: Store) -> None:
        local.create_topic("t")
        with local.base.catalog.write() as tx:
            tx.execute(update(schema.partition).values(log_start=5))
        assert [p.detail for p in local.check().problems] == [
            "log start 5, first dirty 0, active segment 0, log end 0"
        ]

    @pytest.mark.parametrize(("lost", "gap"), [(0, "0 to 0"), (1, "1 to 1"), (2, "2 to 3")])
    def test_a_row_that_was_lost(self, local: Store, lost: int, gap: str) -> None:
        topic = local.create_topic("t")
        write(topic, "a=0 | b=1 | c=2 d=3*")
        with local.base.catalog.write() as tx:
            tx.execute(schema.file.delete().where(schema.file.c.base_offset == lost))
        assert [p.detail for p in local.check().problems] == [
            f"no file holds offsets {gap}, which no pass has covered"
        ]

    def test_what_a_pass_removed_is_no_loss(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=0 | b=1 | c=2 d=3*")
        with local.base.catalog.write() as tx:
            tx.execute(schema.file.delete().where(schema.file.c.base_offset == 1))
            tx.execute(update(schema.partition).values(first_dirty=2))
        assert [p.kind for p in local.check(orphan_age_ms=0).problems] == ["orphan"]

    def test_a_file_below_log_start_or_after_the_active_segment(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=0 | b=1*")
        with local.base.catalog.write() as tx:
            tx.execute(update(schema.partition).values(log_start=1, first_dirty=1, active_base=0))
        details = [p.detail.partition(".parquet: ")[2] for p in local.check().problems]
        assert details == [
            "segment 0, offsets 0 to 0, in a log from 1 to 2",
            "segment 1 is after the active one",
        ]

    def test_what_changed_since_the_files_were_listed_is_no_problem(
        self, local: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file half written then, one appended since, and one that gc has deleted since."""
        topic = local.create_topic("t")
        write(topic, "a=1*")
        orphan = _orphan(local, clock)
        listed = [
            StoredFile(live_paths(topic)[0], 4, clock()),
            StoredFile(orphan, 11, clock()),
        ]
        write(topic, "b=2*")
        local.base.root.delete([orphan])
        monkeypatch.setattr(DataRoot, "files", lambda _: iter(listed))
        assert local.check(orphan_age_ms=0).problems == ()

    def test_progress_is_told(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 | b=2*")
        told: list[int] = []
        local.check(progress=told.append)
        assert sum(told) == topic.describe().bytes


class TestDiskFull:
    def test_nothing_is_lost_and_the_staged_file_goes(self, local: Store, tmp_path: Path) -> None:
        """/dev/full says 'no space left' to every write, as a full disk does."""
        topic = local.create_topic("t")
        write(topic, "a=1*")
        full = _FullRoot(local.base.root.shown)
        object.__setattr__(local.base, "root", full)
        with pytest.raises(StorageError, match="no space left; free some and try again"):
            topic.append([("b", "2")])
        assert shown(topic) == "a=1*"
        assert local.check().is_clean


class _FullRoot(DataRoot):
    """A data root whose new files are links to /dev/full."""

    def create(self, path: str):  # type: ignore[no-untyped-def]
        os.symlink("/dev/full", self.full(path))
        return super().create(path)


def test_a_table_of_nulls_is_a_table_of_tombstones(local: Store) -> None:
    topic = local.create_topic("t")
    topic.append(pa.table({"key": ["a", "b"], "value": pa.nulls(2)}))
    assert topic.describe().partitions[0].segments[0].tombstones == 2
