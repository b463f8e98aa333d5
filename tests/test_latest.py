"""The state of a topic: latest, look-ups, changes since; against plain lists, in any history."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lastword
from lastword.errors import (
    BrokenFileError,
    ConflictError,
    InvalidArgumentError,
    MissedTombstonesError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from lastword.files.key_index import KeyIndex, KeyIndexWriter, hash_of
from lastword.files.reader import FileReader
from lastword.log.scattered import rank
from lastword.model import Record
from lastword.store import Store
from lastword.testing import InProcess, ManualClock
from lastword.topic import Topic
from tests.notation import clean, live_paths, open_files, write
from tests.soak import times

ADDRESS_BOOK = [
    ("1001", "4 Privet Dr"),
    ("1002", "221B Baker Street"),
    ("1003", "Milkman Road"),
    ("1002", "21 Jump St"),
    ("1001", "Paper St"),
    ("1001", "Paper Road 21"),
]


@pytest.fixture
def users(any_data: Store) -> Topic:
    topic = any_data.create_topic("users")
    topic.append(ADDRESS_BOOK)
    return topic


class TestLatest:
    def test_the_address_book(self, users: Topic) -> None:
        latest = users.latest()
        assert latest.to_dict() == {
            b"1001": b"Paper Road 21",
            b"1002": b"21 Jump St",
            b"1003": b"Milkman Road",
        }
        assert [(r.partition, r.offset, r.key) for r in latest] == [
            (0, 2, b"1003"),
            (0, 3, b"1002"),
            (0, 5, b"1001"),
        ]
        assert latest.to_arrow()["offset"].to_pylist() == [2, 3, 5]
        assert sorted(latest.keys()) == [b"1001", b"1002", b"1003"]
        assert latest.end == {0: 6}
        assert users.latest(columns=["key"]).to_arrow().column_names == ["key"]

    def test_these_lines_run_as_written(self, users: Topic, any_data: Store) -> None:
        store, work = any_data, []
        assert users.latest().to_dict() == {
            b"1001": b"Paper Road 21",
            b"1002": b"21 Jump St",
            b"1003": b"Milkman Road",
        }
        assert users.latest().to_arrow().num_rows == 3
        assert users.get("1002").value == b"21 Jump St"
        assert users.get("1005").value is None
        assert [r.offset for r in users.history("1001")] == [5, 4, 0]
        with users.table() as addresses:
            addresses["1004"] = "1 Loop Rd"
            del addresses["1003"]
            assert dict(addresses).keys() == {b"1001", b"1002", b"1004"}
        consumer = store.consumer("billing", ["users"])
        for record in consumer.poll(max_records=500):
            work += [record.offset]
        consumer.commit()
        consumer.close()
        assert work == list(range(8))

    def test_it_is_of_the_moment_when_it_was_made(self, users: Topic) -> None:
        before = users.latest()
        users.append([("1001", None), ("1004", "new")])
        assert len(before.to_dict()) == 3
        assert before.to_dict()[b"1001"] == b"Paper Road 21"
        assert users.latest().to_dict().keys() == {b"1002", b"1003", b"1004"}

    def test_it_can_be_read_while_its_files_are_kept(
        self, local: Store, clock: ManualClock
    ) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 b=1 | a=2")
        view = topic.latest()
        clean(topic)
        assert view.to_dict() == {b"a": b"2", b"b": b"1"}
        clock.advance(3_600_000)
        local.gc()
        with pytest.raises(ConflictError, match="make it anew"):
            view.to_dict()
        assert topic.latest().to_dict() == {b"a": b"2", b"b": b"1"}

    def test_a_broken_file_is_an_error(self, local: Store) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1*")
        Path(local.base.root.full(live_paths(topic)[0])).unlink()
        with pytest.raises(BrokenFileError, match="is missing"):
            topic.latest().to_dict()

    def test_progress_adds_up(self, local: Store) -> None:
        topic = local.create_topic("t", 3)
        for _ in range(3):
            topic.append([(str(i), random.randbytes(1000)) for i in range(2000)])
        for _ in range(2):  # before a pass, and after it
            done: list[int] = []
            latest = topic.latest(progress=done.append)
            latest.to_dict()
            assert sum(done) == latest.bytes
            clean(topic)

    @pytest.mark.parametrize("partitions", [1, 2])
    def test_it_is_scanned_once_and_read_from_anywhere(
        self, local: Store, monkeypatch: pytest.MonkeyPatch, partitions: int
    ) -> None:
        topic = local.create_topic("t", partitions)
        for rows in (40_000, 5_000, 20_000):  # some with several row groups
            topic.append([Record(str(i), "v", partition=0) for i in range(0, rows, 2)])
        topic.append([Record("b", "v", partition=partitions - 1)])
        assert topic.row.is_scattered == (partitions == 2)
        whole = [r.offset or 0 for r in topic.latest() if r.partition == 0]
        latest = topic.latest().scanned()
        monkeypatch.setattr("lastword.log.latest.alive", None)
        for start in (0, 1, 10_000, whole[len(whole) // 2], whole[-1], whole[-1] + 1):
            found = [r.offset for r in latest.records_from(0, start)]
            assert found == [offset for offset in whole if offset >= start]
        *_, last = latest.records_from(partitions - 1, 0)
        assert last.key == b"b"
        assert latest.to_dict().keys() == {b"b", *(b"%d" % i for i in range(0, 40_000, 2))}

    def test_a_map_that_is_too_small_is_split(self, local: Store) -> None:
        local.alter({"log.cleaner.dedupe.buffer.size": (1 << 20) + 1})
        topic = local.create_topic("t")
        for turn in range(3):
            topic.append([(f"key-{i}", str(turn)) for i in range(20_000)])
        found = topic.latest().to_dict()
        assert len(found) == 20_000
        assert set(found.values()) == {b"2"}

    def test_one_partition(self, local: Store) -> None:
        topic = local.create_topic("t", 2)
        write(topic, "a=1*", partition=0)
        write(topic, "b=1*", partition=1)
        assert topic.latest(1).to_dict() == {b"b": b"1"}
        with pytest.raises(UnknownTopicError, match="no partition 2"):
            topic.latest(2)

    def test_records_that_retention_cut_off_are_gone(self, local: Store) -> None:
        """Also where log start lies within a file that is not scanned."""
        topic = local.create_topic("t", config={"cleanup.policy": "compact,delete"})
        write(topic, "a=1 b=2 c=3")
        clean(topic)
        topic.delete_records(0, 1)
        assert topic.latest().to_dict() == {b"b": b"2", b"c": b"3"}
        assert topic.get("a").value is None
        assert [r.key for r in topic.changes({0: 2})] == [b"c"]

    def test_null_keys_of_an_uncompacted_topic_are_nobodys(self, local: Store) -> None:
        topic = local.create_topic("t", config={"cleanup.policy": "delete"})
        topic.append([("a", "1"), (None, "x"), ("a", "2"), (None, None)])
        assert topic.latest().to_dict() == {b"a": b"2"}


class TestScattered:
    """Keys in other partitions than their hash names."""

    def test_it_is_known(self, store: Store) -> None:
        topic = store.create_topic("t", 4)
        topic.append([("a", "1"), ("b", "2")])
        by_hash = {r.key: r.partition for r in topic.read()}
        topic.append([Record("a", "3", partition=by_hash[b"a"])])
        assert not topic.row.is_scattered
        topic.append([Record("a", "4", 1_700_000_000_001, partition=(by_hash[b"a"] or 0) ^ 1)])
        assert topic.row.is_scattered
        assert topic.get("a").value == b"4"
        assert [r.value for r in topic.history("a")] == [b"4", b"3", b"1"]
        assert topic.latest().to_dict() == {b"a": b"4", b"b": b"2"}

    def test_the_newest_counts_wherever_it_is(self, local: Store) -> None:
        topic = local.create_topic("t", 2)
        topic.append(
            [
                Record("a", "new", 2, partition=0),
                Record("a", "old", 1, partition=1),
                Record("b", None, 2, partition=0),
                Record("b", "old", 1, partition=1),
                Record("c", "new", 2, partition=1),
                Record("c", None, 1, partition=0),
            ]
        )
        expected = {b"a": b"new", b"c": b"new"}
        assert topic.latest().to_dict() == expected
        assert {k: topic.get(k).value for k in "abc"} == {"a": b"new", "b": None, "c": b"new"}
        with topic.table() as table:
            assert dict(table) == expected
            topic.append(
                [Record("a", "newer", 4, partition=0), Record("a", "late", 3, partition=1)]
            )
            table.refresh()
            assert table["a"] == b"newer"

    def test_a_tie_has_one_answer(self, local: Store) -> None:
        """Records of the same millisecond: a value before a tombstone, then the higher partition."""
        topic = local.create_topic("t", 3)
        for number, value in enumerate(["zero", None, "two"]):
            topic.append([Record("a", value, 5, partition=number)])
            topic.append([Record("b", None if value else "one", 5, partition=number)])
        expected = {b"a": b"two", b"b": b"one"}
        assert topic.latest().to_dict() == expected
        assert {r.key: r.value for r in topic.latest()} == expected
        assert sorted(topic.latest().keys()) == [b"a", b"b"]
        assert {k: topic.get(k).value for k in expected} == expected
        assert [next(iter(topic.history(k))).value for k in expected] == [b"two", b"one"]
        assert list(topic.deleted()) == []

    def test_a_table_deletes_a_key_wherever_it_is(self, local: Store) -> None:
        topic = local.create_topic("t")
        topic.append([(str(i), "old") for i in range(20)])
        topic.add_partitions(5)
        with topic.table() as table:
            for i in range(10):
                del table[str(i)]
                table[str(10 + i)] = "new"  # all in one millisecond
            expected = {b"%d" % i: b"new" for i in range(10, 20)}
            assert dict(table) == topic.latest().to_dict() == expected
        with topic.table() as table:
            assert dict(table) == expected

    def test_it_becomes_scattered_while_it_is_read(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = local.create_topic("t", 2)
        topic.append([("a", "1"), ("b", "1")])
        before = topic.row
        elsewhere = 1 - (topic.get("a").partition or 0)
        topic.append([Record("a", None, 1_700_000_000_001, partition=elsewhere)])
        monkeypatch.setattr(Topic, "row", property(lambda _: before))  # as it was a moment ago
        assert topic.latest().to_dict() == {b"b": b"1"}
        with topic.table() as table:
            assert dict(table) == {b"b": b"1"}

    def test_partitions_that_were_added(self, store: Store, clock: ManualClock) -> None:
        topic = store.create_topic("t")
        topic.append([(str(i), "old") for i in range(50)])
        topic.add_partitions(7)
        clock.advance(1)
        topic.append([(str(i), None if i % 5 == 0 else "new") for i in range(0, 50, 2)])
        expected = {b"%d" % i: b"old" if i % 2 else b"new" for i in range(50) if i % 10}
        assert topic.latest().to_dict() == expected
        assert {k: topic.get(k).value for k in expected} == expected
        assert topic.get("10").value is None
        with topic.table() as table:
            assert dict(table) == expected


class TestGet:
    def test_the_last_record(self, users: Topic) -> None:
        assert users.get("1002") == Record(
            b"1002", b"21 Jump St", users.get("1002").timestamp, (), 0, 3
        )
        assert users.get(b"1001").offset == 5
        assert users.get("1005") == Record(b"1005", None)
        users.append([("1002", None, 5, {"why": b"moved"})])
        assert users.get("1002").value is None
        assert users.get("1002").headers == (("why", b"moved"),)

    def test_bad_keys(self, users: Topic) -> None:
        for bad in (None, 5, ["1002"]):
            with pytest.raises(InvalidArgumentError, match="a key is bytes or text"):
                users.get(bad)  # type: ignore[arg-type]

    def test_history(self, users: Topic, any_data: Store) -> None:
        history = users.history("1001")
        assert [r.offset for r in history] == [5, 4, 0]
        assert history.removed_by is None
        clean(users)
        users.append([("1001", "7 Elm St")])
        history = users.history("1001")
        assert [(r.offset, r.value) for r in history] == [(6, b"7 Elm St"), (5, b"Paper Road 21")]
        assert history.removed_by == any_data.passes("users")[0]
        assert len(users.history("nobody")) == 0

    def test_the_newest_versions_of_many(self, users: Topic) -> None:
        clean(users)
        users.append([("1001", str(n)) for n in range(3)])
        newest = users.history("1001", limit=2)
        assert [r.value for r in newest] == [b"2", b"1"]
        assert newest.removed_by is None  # whether any were removed is beyond them
        assert users.history("1001", limit=4).removed_by is None
        assert users.history("1001", limit=5).removed_by is not None

    def test_a_deleted_topic(self, users: Topic) -> None:
        users.get("1001")
        users.delete()
        with pytest.raises(UnknownTopicError):
            users.get("1001")

    def test_a_warm_handle_follows_the_log(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic(
            "t", config={"file.delete.delay.ms": 0, "delete.retention.ms": 0}
        )
        for turn in range(20):
            topic.append([(f"k{i}", str(turn)) for i in range(turn % 3, 9, 3)])
            if turn % 4 == 3:
                clean(topic)
                local.gc()
            if turn % 5 == 4:
                topic.append([("k1", None)])
            for i in range(9):
                assert topic.get(f"k{i}").value == topic.latest().to_dict().get(b"k%d" % i)
            clock.advance(1)

    def test_many_versions_in_one_file(self, local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only the last is decoded for `get`; history has them all."""
        topic = local.create_topic("t")
        topic.append([("hot", str(i)) for i in range(5_000)])
        asked: list[int] = []
        take: Callable[..., pa.Table] = FileReader.take

        def counted(reader: FileReader, rows: list[int], columns: list[str]) -> pa.Table:
            asked.append(len(rows))
            return take(reader, rows, columns)

        monkeypatch.setattr(FileReader, "take", counted)
        assert topic.get("hot").value == b"4999"
        assert asked == [1]
        assert [r.offset for r in topic.history("hot")] == list(range(4_999, -1, -1))

    def test_no_file_is_kept_open(self, local: Store) -> None:
        topic = local.create_topic("t")
        for i in range(30):
            topic.append([(str(i), "x")])
        assert topic.get("0").offset == 0  # for which all of them were opened
        assert open_files(local) == []

    def test_a_warm_handle_does_not_bring_a_deleted_key_back(
        self, local: Store, clock: ManualClock
    ) -> None:
        """It knows the file with the value, and has never seen the tombstone, which is gone."""
        topic = local.create_topic("t", config={"delete.retention.ms": 10})
        write(topic, "a=1 b=1")
        assert topic.get("a").value == b"1"
        write(topic, "a=∅ c=1")
        clean(topic)
        clock.advance(10)
        clean(topic)
        assert topic.get("a").value is None

    def test_only_files_that_may_hold_the_key_are_read(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = local.create_topic("t")
        for n in range(20):
            topic.append([(f"key-{n}-{i}", "x") for i in range(10)])
        read = []
        take: Callable[..., pa.Table] = FileReader.take

        def counted(reader: FileReader, rows: list[int], columns: list[str]) -> pa.Table:
            read.append(reader.file.base_offset)
            return take(reader, rows, columns)

        monkeypatch.setattr(FileReader, "take", counted)
        assert topic.get("key-7-3").offset == 73
        assert read == [70]
        assert topic.get("nobody").offset is None
        assert read == [70]


class TestKeyIndex:
    @given(st.lists(st.one_of(st.none(), st.binary(max_size=3)), max_size=2_000))
    @settings(max_examples=times(30))
    def test_every_key_is_found(self, keys: list[bytes | None]) -> None:
        writer = KeyIndexWriter()
        writer.add(pa.chunked_array([pa.array(keys, pa.binary())]))
        sink = pa.BufferOutputStream()
        sink.write(b"before")
        index = KeyIndex.parsed(writer.write(sink).encode())
        source = pa.BufferReader(sink.getvalue())
        for key in {k for k in keys if k is not None} | {b"absent"}:
            rows = [i for i, k in enumerate(keys) if k == key]
            found = index.rows(source, hash_of(key))
            assert [i for i in found if keys[i] == key] == rows
            assert all(hash_of(keys[i] or b"") == hash_of(key) for i in found)

    def test_a_flipped_bit_is_found(self) -> None:
        writer = KeyIndexWriter()
        writer.add(pa.chunked_array([pa.array([b"%d" % i for i in range(3_000)])]))
        sink = pa.BufferOutputStream()
        said = writer.write(sink)
        content = bytearray(sink.getvalue().to_pybytes())
        content[1234] ^= 4
        with pytest.raises(ValueError, match="checksum"):
            list(KeyIndex.parsed(said.encode()).all_entries(pa.BufferReader(bytes(content))))


class TestChanges:
    def test_one_record_a_key(self, users: Topic) -> None:
        users.append([("1003", None), ("1004", "1 Loop Rd")])
        delta = users.changes({0: 4})
        assert [(r.offset, r.key, r.value) for r in delta] == [
            (5, b"1001", b"Paper Road 21"),
            (6, b"1003", None),
            (7, b"1004", b"1 Loop Rd"),
        ]
        assert not delta.is_full
        assert list(users.changes(delta.end)) == []
        assert len(list(users.changes({}))) == 4

    def test_bad_positions(self, users: Topic) -> None:
        with pytest.raises(OffsetOutOfRangeError, match="beyond log end"):
            users.changes({0: 7})
        with pytest.raises(UnknownTopicError, match="no partition 3"):
            users.changes({3: 0})
        for bad in (5, {0: "x"}, {0: None}, {0: 1.5}, {"x": 0}, {None: 0}):
            with pytest.raises(InvalidArgumentError):
                users.changes(bad)  # type: ignore[arg-type]
        assert len(list(users.changes({"0": 5}))) == 1  # type: ignore[dict-item] # as JSON has it

    def test_when_tombstones_have_gone(self, store: Store, clock: ManualClock) -> None:
        topic = store.create_topic("t", config={"delete.retention.ms": 10})
        write(topic, "a=1 b=1 | a=∅ c=1")  # the tombstone is at 2
        clean(topic)
        clock.advance(10)
        assert [(r.key, r.value) for r in topic.changes({0: 2})] == [(b"a", None), (b"c", b"1")]
        clean(topic)
        assert [r.key for r in topic.changes({0: 3})] == [b"c"]
        with pytest.raises(MissedTombstonesError, match="between offsets 2 and 3 have gone"):
            topic.changes({0: 2})
        delta = topic.changes({0: 2}, or_full=True)
        assert delta.is_full
        assert {r.key: r.value for r in delta} == {b"b": b"1", b"c": b"1"}
        assert delta.end == {0: 4}

    def test_the_highest_tombstone_that_has_gone_counts(
        self, local: Store, clock: ManualClock
    ) -> None:
        topic = local.create_topic("t", config={"delete.retention.ms": 10})
        write(topic, "a=1 b=1 | a=∅ b=∅ c=1")
        for _ in range(2):
            clean(topic)
            clock.advance(10)
        for position in (2, 3):
            with pytest.raises(MissedTombstonesError):
                topic.changes({0: position})
        assert [r.key for r in topic.changes({0: 4})] == [b"c"]

    def test_deleted_keys_and_when_they_vanish(self, store: Store, clock: ManualClock) -> None:
        topic = store.create_topic("t", config={"delete.retention.ms": 10})
        write(topic, "a=1 b=1 | a=∅ b=∅ b=2")
        (found,) = topic.deleted()
        assert (found.key, found.offset, found.vanishes_ms) == (b"a", 2, None)
        clean(topic)
        (found,) = topic.deleted()
        assert found.vanishes_ms == clock() + 10
        clock.advance(10)
        clean(topic)
        assert list(topic.deleted()) == []


words = st.lists(
    st.tuples(st.sampled_from("abcdefg"), st.sampled_from(["1", "2", None])), min_size=1, max_size=6
)
steps = st.lists(
    st.one_of(words, st.sampled_from(["roll", "clean", "wait", "gc"]), st.just("look")),
    max_size=14,
)


@given(steps, st.integers(1, 3))
@settings(max_examples=times(30))
def test_any_history(history: list[object], partitions: int) -> None:
    """Latest, get and changes are exact at every moment, or say that they cannot be."""
    clock = ManualClock()
    with (
        tempfile.TemporaryDirectory() as folder,
        lastword.open(folder + "/s", clock=clock) as store,
    ):
        config = {
            "delete.retention.ms": 50,
            "file.delete.delay.ms": 50,
            "min.cleanable.dirty.ratio": 0,
        }
        topic = store.create_topic("t", partitions, config)
        state: dict[bytes, bytes] = {}
        looks: list[tuple[dict[int, int], dict[bytes, bytes]]] = []
        for step in history:
            clock.advance(10)
            if isinstance(step, list):
                topic.append(step)
                for key, value in step:
                    state.pop(key.encode(), None)
                    if value is not None:
                        state[key.encode()] = value.encode()
            elif step == "roll":
                topic.roll()
            elif step == "clean":
                store.clean(runner=InProcess())
            elif step == "wait":
                clock.advance(60)
            elif step == "gc":
                store.gc()
            else:
                looks.append((topic.latest().end, dict(state)))
            _is_exact(topic, state, looks)


strays = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["1", "2", None]),
        st.integers(0, 4),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=5,
)


@given(
    st.lists(
        st.one_of(strays, st.sampled_from(["clean", "wait", "refresh", "delete"])), max_size=12
    )
)
@settings(max_examples=times(15))
def test_any_history_of_strays(history: list[object]) -> None:
    """Whatever partitions and times records have, all ways to ask give the same answer."""
    clock = ManualClock()
    with (
        tempfile.TemporaryDirectory() as folder,
        lastword.open(folder + "/s", clock=clock) as store,
    ):
        config = {"delete.retention.ms": 20, "min.cleanable.dirty.ratio": 0}
        topic = store.create_topic("t", 3, config)
        table = topic.table()
        for step in history:
            clock.advance(5)
            if isinstance(step, list):
                stamp = clock()
                topic.append([Record(k, v, stamp + ms, partition=p) for k, v, ms, p in step])
            elif step == "clean":
                topic.roll()
                store.clean(runner=InProcess())
            elif step == "wait":
                clock.advance(20)
            elif step == "delete" and b"a" in table:
                del table["a"]
            else:
                table.refresh()
                assert dict(table) == _newest(topic)
            expected = _newest(topic)
            latest = topic.latest()
            assert latest.to_dict() == {r.key: r.value for r in latest} == expected
            assert sorted(latest.keys()) == sorted(expected)
            for key in (b"a", b"b", b"c"):
                assert topic.get(key).value == expected.get(key)
                versions = list(topic.history(key))
                assert (versions[0].value if versions else None) == expected.get(key)
            assert not {d.key for d in topic.deleted()} & expected.keys()
        table.close()


def _newest(topic: Topic) -> dict[bytes, bytes]:
    """What counts of what is in the log."""
    lasts = {(r.key, r.partition): r for r in topic.read()}
    found: dict[bytes, Record] = {}
    for (key, _), record in lasts.items():
        assert isinstance(key, bytes)
        if key not in found or rank(found[key]) < rank(record):
            found[key] = record
    return {k: r.value for k, r in found.items() if r.value is not None}  # type: ignore[misc]


def _is_exact(
    topic: Topic, state: dict[bytes, bytes], looks: list[tuple[dict[int, int], dict[bytes, bytes]]]
) -> None:
    assert topic.latest().to_dict() == state
    for key in (b"a", b"d", b"g"):
        assert topic.get(key).value == state.get(key)
    for since, then in looks:
        delta = topic.changes(since, or_full=True)
        now = {} if delta.is_full else dict(then)
        for record in delta:
            assert isinstance(record.key, bytes)
            if record.value is None:
                now.pop(record.key, None)
            else:
                now[record.key] = record.value  # type: ignore[assignment]
        assert now == state
