"""The log's behaviour, on every file system: what is written is read, in order, for ever."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lastword
from lastword.catalog.commits import commit_append
from lastword.errors import (
    BrokenFileError,
    InvalidArgumentError,
    InvalidRecordError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from lastword.log import append as log_append
from lastword.model import Record
from lastword.store import Store
from lastword.testing import ManualClock
from tests.notation import live_paths, shown, write

ADDRESS_BOOK = [
    ("1001", "4 Privet Dr"),
    ("1002", "221B Baker Street"),
    ("1003", "Milkman Road"),
    ("1002", "21 Jump St"),
    ("1001", "Paper St"),
    ("1001", "Paper Road 21"),
]


def test_what_was_appended_is_read_in_order(any_data: Store) -> None:
    users = any_data.create_topic("users")
    result = users.append(ADDRESS_BOOK)
    assert result.ranges == (("users", 0, 0, 5),)
    assert result.records == 6
    assert [(r.offset, r.key, r.value) for r in users.read(partition=0)] == [
        (i, k.encode(), v.encode()) for i, (k, v) in enumerate(ADDRESS_BOOK)
    ]


@pytest.mark.parametrize("log", ["a=1 b=2 | a=3 b=∅ | c=4*", "a=1*", "a=1 | b=∅", "a= b=2 | a=∅*"])
def test_segments_and_tombstones(any_data: Store, log: str) -> None:
    topic = any_data.create_topic("t")
    write(topic, log)
    assert shown(topic) == log


def test_offsets_go_on_over_rolls(local: Store) -> None:
    topic = local.create_topic("t")
    write(topic, "a=1 b=2 | a=3*")
    assert shown(topic, offsets=True) == "0:a=1 1:b=2 | 2:a=3*"


def test_an_empty_segment_is_not_rolled(local: Store) -> None:
    topic = local.create_topic("t", partitions=3)
    assert topic.roll() == []
    topic.append([Record("a", "1", partition=1)])
    assert topic.roll() == [1]
    assert topic.roll() == []


def test_what_is_acknowledged_is_on_disk(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file, and every folder that got a new name in it, is synced before the commit."""
    topic = local.create_topic("t")
    fsync, synced = os.fsync, []

    def remember(descriptor: int) -> None:
        synced.append(os.path.realpath(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def commit(*args: Any) -> Any:
        synced.append("commit")
        return commit_append(*args)

    monkeypatch.setattr(os, "fsync", remember)
    monkeypatch.setattr(log_append, "commit_append", commit)
    topic.append([("a", "1")])
    root = os.path.realpath(local.base.root.shown)
    path = f"{root}/{live_paths(topic)[0]}"
    assert synced == [root, f"{root}/t", path, f"{root}/t/0", "commit"]


def test_reopened_it_is_all_there(data_url: str, clock: ManualClock) -> None:
    with lastword.open(data_url, clock=clock) as store:
        write(store.create_topic("t"), "a=1 | b=2*")
    with lastword.open(data_url, clock=clock, create=False) as store:
        assert shown(store.topic("t")) == "a=1 | b=2*"
        assert store.check().is_clean


def test_every_field_comes_back(any_data: Store, clock: ManualClock) -> None:
    topic = any_data.create_topic("t")
    sent = [
        Record(b"\x00\xff", "ü", clock(), (("h", b"1"), ("h", None), ("", b""))),
        Record("", "", clock() - 5),
        Record("k", None),
    ]
    topic.append(sent)
    assert list(topic.read(0)) == [
        Record(b"\x00\xff", "ü".encode(), clock(), (("h", b"1"), ("h", None), ("", b"")), 0, 0),
        Record(b"", b"", clock() - 5, (), 0, 1),
        Record(b"k", None, clock(), (), 0, 2),
    ]
    assert [r.is_tombstone for r in topic.read(0)] == [False, False, True]


def test_a_read_in_the_middle(local: Store) -> None:
    topic = local.create_topic("t")
    write(topic, "a=0 a=1 | a=2 a=3 | a=4 a=5*")

    def offsets(**bounds: Any) -> list[int | None]:
        return [r.offset for r in topic.read(0, **bounds)]

    assert offsets(start=3) == [3, 4, 5]
    assert offsets(start=1, end=4) == [1, 2, 3]
    assert offsets(end=2) == [0, 1]
    assert offsets(start=4, end=100) == [4, 5]
    assert offsets(start=1, limit=3) == [1, 2, 3]
    assert offsets(limit=0) == []
    assert offsets(start=6) == []
    assert offsets(start=3, end=3) == []


def test_a_position_outside_the_log_is_refused(local: Store) -> None:
    topic = local.create_topic("t", config={"cleanup.policy": "delete"})
    write(topic, "a=0 | a=1 | a=2*")
    topic.delete_records(0, 1)
    assert [r.offset for r in topic.read(0)] == [1, 2]
    with pytest.raises(OffsetOutOfRangeError, match="offset 0 is below log start; valid .* 1 to 3"):
        topic.read(0, start=0)
    with pytest.raises(OffsetOutOfRangeError, match="offset 4 is beyond log end"):
        topic.read(0, start=4)
    with pytest.raises(InvalidArgumentError, match="nothing lies between"):
        topic.read(0, start=2, end=1)


def test_all_partitions_at_once(local: Store) -> None:
    topic = local.create_topic("t", partitions=2)
    topic.append([Record("a", "1", partition=1), Record("b", "2", partition=0)])
    assert [(r.partition, r.key) for r in topic.read()] == [(0, b"b"), (1, b"a")]
    with pytest.raises(InvalidArgumentError, match="say which"):
        topic.read(start=3)


def test_columns_are_projected(any_data: Store) -> None:
    topic = any_data.create_topic("t")
    topic.append(ADDRESS_BOOK)
    table = topic.read(0, start=4, limit=1).to_arrow()
    assert table.column_names == ["partition", "offset", "timestamp", "key", "value", "headers"]
    table = topic.read(0, columns=["key", "offset"]).to_arrow()
    assert table.column_names == ["key", "offset"]
    assert table["offset"].to_pylist() == [0, 1, 2, 3, 4, 5]
    assert next(iter(topic.read(0, columns=["offset"]))) == Record(None, None, offset=0)
    with pytest.raises(InvalidArgumentError, match="no column 'vlaue'; did you mean 'value'"):
        topic.read(0, columns=["vlaue"])
    with pytest.raises(InvalidArgumentError, match="name a column: partition, offset"):
        topic.read(0, columns=[])


def test_values_are_not_read_when_they_are_not_asked_for(local: Store) -> None:
    topic = local.create_topic("t")
    topic.append([("k", "v" * 10_000)])
    path = Path(local.base.root.full(live_paths(topic)[0]))
    content = path.read_bytes()
    at = content.index(b"vvvv")
    path.write_bytes(content[:at] + b"w" + content[at + 1 :])
    assert [r.key for r in topic.read(0, columns=["key"])] == [b"k"]
    with pytest.raises(BrokenFileError, match="is corrupt"):
        list(topic.read(0))


def test_a_reader_ends_where_the_log_ended_when_it_was_made(local: Store) -> None:
    topic = local.create_topic("t")
    topic.append([("a", "1")])
    reader = topic.read(0)
    topic.append([("a", "2")])
    assert len(list(reader)) == 1
    assert len(list(reader)) == 1  # each iteration starts anew


def test_many_row_groups_and_files(any_data: Store) -> None:
    """More data than one row group holds, in more files than one: read at every kind of place."""
    topic = any_data.create_topic("t")
    values = pa.array([b"%06d" % i * 2000 for i in range(4000)])  # 48 MB
    keys = pa.array([b"%d" % i for i in range(4000)])
    topic.append(pa.table({"key": keys.slice(0, 3900), "value": values.slice(0, 3900)}))
    topic.append(pa.table({"key": keys.slice(3900), "value": values.slice(3900)}))
    assert topic.read(0).to_arrow()["key"].to_pylist() == keys.to_pylist()
    for start, end in ((0, 1), (1397, 1400), (3899, 3901), (3999, 4000)):
        found = topic.read(0, start, end).to_arrow()
        assert found["offset"].to_pylist() == list(range(start, end))
        assert found["value"].to_pylist() == values.slice(start, end - start).to_pylist()


def test_batches_stay_small_however_unequal_the_records_are(local: Store) -> None:
    topic = local.create_topic("t")
    values = ["x"] * 50_000 + ["y" * 5_000_000] * 10 + ["z"] * 50_000
    topic.append((f"{i}", value) for i, value in enumerate(values))
    sizes = [batch.nbytes for batch in topic.read(0).batches()]
    assert max(sizes) < 25_000_000
    assert topic.read(0).to_arrow()["key"].to_pylist() == [b"%d" % i for i in range(len(values))]


def test_headers_count_too(local: Store) -> None:
    topic = local.create_topic("t")
    large = (("h", b"x" * 1_000_000), ("i", None))
    topic.append((f"{i}", "v", None, large if i % 1000 == 0 else ()) for i in range(60_000))
    assert max(batch.nbytes for batch in topic.read(0).batches()) < 25_000_000


def test_numbers_of_numpy_are_numbers(local: Store) -> None:
    topic = local.create_topic("t", config={"cleanup.policy": "delete"})
    write(topic, "a=0 | b=1 | c=2*")
    zero: Any = np.int64(0)
    one: Any = np.int64(1)
    assert [r.offset for r in topic.read(zero, one, one + 1)] == [1]
    assert topic.delete_records(zero, one) == 1
    with pytest.raises(TypeError):
        topic.delete_records(0, 1.5)  # type: ignore[arg-type]


def test_offset_for_a_timestamp(any_data: Store, clock: ManualClock) -> None:
    topic = any_data.create_topic("t")
    t = clock() - 1_000
    topic.append([("a", "1", t + 10), ("b", "2", t + 5), ("c", "3", t + 30)])
    topic.append([("d", "4", t + 20), ("e", "5", t + 40)])
    found = [topic.offset_for_timestamp(0, t + ms) for ms in (0, 10, 11, 30, 31, 40, 41)]
    assert found == [0, 0, 2, 2, 4, 4, None]


def test_offset_for_a_timestamp_skips_what_is_below_log_start(
    local: Store, clock: ManualClock
) -> None:
    topic = local.create_topic("t", config={"cleanup.policy": "delete"})
    topic.append([("a", "1", clock()), ("b", "2", 5), ("c", "3", 5)])
    topic.append([("d", "4", clock())])
    topic.delete_records(0, 1)
    assert topic.offset_for_timestamp(0, 6) == 3
    assert topic.offset_for_timestamp(0, 5) == 1


class TestSeveralTopics:
    def test_all_or_nothing(self, store: Store) -> None:
        a, b = store.create_topic("a", 2), store.create_topic("b")
        done = store.append({"a": [("x", "1"), ("y", "2")], "b": [("z", "3")]})
        assert done.records == 3
        assert {r.topic for r in done.ranges} == {"a", "b"}
        with pytest.raises(InvalidRecordError):
            store.append({"a": [("x", "4")], "b": [(None, "5")]})
        with pytest.raises(UnknownTopicError):
            store.append({"a": [("x", "4")], "c": [("z", "5")]})
        assert (a.describe().records, b.describe().records) == (2, 1)

    def test_exactly_once(self, store: Store) -> None:
        store.create_topic("a")
        store.create_topic("b")
        first = store.append({"a": [("x", "1")], "b": [("x", "1")]}, writer=("w", 1))
        again = store.append({"a": [("x", "1")], "b": [("x", "1")]}, writer=("w", 1))
        assert (again.ranges, again.is_repeat) == (first.ranges, True)
        assert store.topic("b").describe().records == 1


class TestTimestamps:
    def test_create_time_is_kept_and_filled_in(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t")
        when = datetime(2020, 1, 2, 3, 4, 5, 678_999, tzinfo=UTC)
        topic.append([("a", "1", 77), ("b", "2", None), ("c", "3", when)])
        assert [r.timestamp for r in topic.read(0)] == [77, clock(), 1_577_934_245_678]

    def test_log_append_time_is_the_stores(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", config={"message.timestamp.type": "LogAppendTime"})
        topic.append([("a", "1", 77), ("b", "2", clock() * 2)])
        assert [r.timestamp for r in topic.read(0)] == [clock(), clock()]

    def test_bounds(self, local: Store, clock: ManualClock) -> None:
        bounds = {"message.timestamp.before.max.ms": 10, "message.timestamp.after.max.ms": 20}
        topic = local.create_topic("t", config=bounds)
        now = clock()
        topic.append([("a", "1", now - 10), ("b", "2", now + 20)])
        for bad in (now - 11, now + 21):
            with pytest.raises(InvalidRecordError, match=r"record\(s\) 1 came outside") as error:
                topic.append([("a", "1", now), ("b", "2", bad)])
            assert error.value.indexes == (1,)
        assert topic.offsets() == {0: (0, 2)}

    def test_a_negative_one_or_one_without_zone_is_refused(self, local: Store) -> None:
        topic = local.create_topic("t")
        with pytest.raises(InvalidRecordError, match="outside, the first at -1"):
            topic.append([("a", "1", -1)])
        with pytest.raises(InvalidRecordError, match="has no time zone"):
            topic.append([("a", "1", datetime(2020, 1, 1))])


class TestPartitions:
    def test_by_key_as_kafka(self, local: Store) -> None:
        topic = local.create_topic("t", partitions=10)
        topic.append([("foobar", "1"), ("abc", "2"), ("21", "3")])
        # (murmur2 & 0x7fffffff) % 10 of the known vectors
        assert {r.key: r.partition for r in topic.read()} == {b"foobar": 6, b"abc": 7, b"21": 0}

    def test_explicit_ones_win(self, local: Store) -> None:
        topic = local.create_topic("t", partitions=10)
        topic.append([Record("foobar", "1", partition=3), Record("foobar", "2")])
        assert [(r.partition, r.value) for r in topic.read()] == [(3, b"1"), (6, b"2")]

    def test_keyless_ones_go_round_robin(self, local: Store) -> None:
        topic = local.create_topic("t", partitions=3, config={"cleanup.policy": "delete"})
        topic.append([(None, "0"), (None, "1"), ("21", "key"), (None, "2"), (None, "3")])
        topic.append([(None, "4")])
        got = {n: [r.value for r in topic.read(n) if r.key is None] for n in range(3)}
        assert got == {0: [b"0", b"3"], 1: [b"1", b"4"], 2: [b"2"]}

    def test_one_that_is_not_there_is_refused(self, local: Store) -> None:
        topic = local.create_topic("t", partitions=2)
        with pytest.raises(InvalidRecordError, match=r"partitions 0 to 1; record\(s\) 1 came"):
            topic.append([Record("a", "1"), Record("a", "1", partition=2)])

    def test_records_that_were_read_are_partitioned_anew(self, local: Store) -> None:
        source = local.create_topic("source", partitions=10)
        source.append([("foobar", "1"), ("abc", "2")])
        target = local.create_topic("target")
        target.append(source.read())
        target.append(source.read().to_arrow())
        assert [r.value for r in target.read()] == [b"1", b"2"] * 2


class TestArrow:
    @pytest.mark.parametrize(
        "kind",
        [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.string_view(),
         pa.binary_view(), pa.dictionary(pa.int32(), pa.string()), pa.binary(1)],
        ids=str,
    )  # fmt: skip
    def test_any_kind_of_text(self, local: Store, kind: pa.DataType) -> None:
        topic = local.create_topic("t")
        column = pa.array([b"a", b"b", b"a"])
        if pa.types.is_dictionary(kind):
            column = column.cast(pa.string()).dictionary_encode()
        topic.append(pa.table({"key": column.cast(kind), "value": column.cast(kind)}))
        assert [r.value for r in topic.read(0)] == [b"a", b"b", b"a"]

    def test_all_columns(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", partitions=2)
        headers = pa.array(
            [[{"key": "h", "value": b"1"}], None],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        )
        table = pa.table(
            {
                "value": ["x", None],
                "key": ["k", "l"],
                "headers": headers,
                "partition": pa.array([1, 0]),
                "timestamp": pa.array([1_999, None], pa.timestamp("us", "UTC")),
            }
        )
        topic.append(table.to_batches()[0])
        assert list(topic.read(1)) == [Record(b"k", b"x", 1, (("h", b"1"),), 1, 0)]
        assert list(topic.read(0)) == [Record(b"l", None, clock(), (), 0, 0)]

    @pytest.mark.parametrize(
        ("columns", "problem"),
        [
            ({"key": [1], "value": ["x"]}, "column 'key' is int64; give binary or string"),
            ({"key": ["x"]}, "no column 'value' in the Arrow table"),
            ({"key": ["x"], "value": ["y"], "kye": [1]}, "unknown column 'kye'"),
            (
                {"key": ["x"], "value": ["y"], "timestamp": ["noon"]},
                "column 'timestamp' is string, which does not become",
            ),
            (
                {"key": ["x"], "value": ["y"], "timestamp": [datetime(2020, 1, 1)]},
                "column 'timestamp' has no time zone",
            ),
            (
                {"key": ["x"], "value": ["y"], "partition": [2**32 + 1]},
                "column 'partition' is int64, which does not become int32",
            ),
            ({"key": ["x"], "value": ["y"], "partition": [0.5]}, "column 'partition' is double"),
            ({"key": ["x"], "value": ["y"], "partition": ["0"]}, "column 'partition' is string"),
            ({"key": ["x"], "value": ["y"], "headers": [[None]]}, "a header that is null"),
        ],
    )
    def test_what_does_not_fit(
        self, local: Store, columns: dict[str, list[object]], problem: str
    ) -> None:
        topic = local.create_topic("t")
        with pytest.raises(InvalidRecordError, match=problem):
            topic.append(pa.table(columns))

    def test_a_time_that_does_not_fit(self, local: Store) -> None:
        stamps = pa.array([2**62], pa.timestamp("s", "UTC"))
        with pytest.raises(InvalidRecordError, match="does not become timestamp"):
            local.create_topic("t").append(
                pa.table({"key": ["x"], "value": ["y"], "timestamp": stamps})
            )

    def test_a_header_that_is_not_utf_8(self, local: Store) -> None:
        bad = pa.array([b"\xff"]).view(pa.string())
        pair = pa.StructArray.from_arrays([bad, pa.array([b"x"])], names=["key", "value"])
        headers = pa.ListArray.from_arrays([0, 1], pair)
        with pytest.raises(InvalidRecordError, match="does not become list.*UTF8"):
            local.create_topic("t").append(
                pa.table({"key": ["x"], "value": ["y"], "headers": headers})
            )

    def test_what_is_no_table(self, local: Store) -> None:
        topic = local.create_topic("t")
        with pytest.raises(InvalidRecordError, match="no table of records"):
            topic.append(pa.array([1, 2]))
        twice = pa.table([["x"], ["y"], ["z"]], names=["key", "value", "key"])
        with pytest.raises(InvalidRecordError, match="a column stands twice"):
            topic.append(twice)

    def test_many_chunks(self, local: Store) -> None:
        topic = local.create_topic("t", partitions=3)
        piece = pa.table({"key": ["a", "b", "c", "d"], "value": ["1", "2", "3", "4"]})
        topic.append(pa.concat_tables([piece] * 50))
        assert topic.read().to_arrow().num_rows == 200
        for number in range(3):
            keys = [r.key for r in topic.read(number)]
            assert keys == [k for k in (b"a", b"b", b"c", b"d") * 50 if k in set(keys)]


class TestRefusals:
    def test_null_keys_on_a_compacted_topic(self, local: Store) -> None:
        topic = local.create_topic("t", config={"cleanup.policy": "compact,delete"})
        with pytest.raises(
            InvalidRecordError, match=r"is compacted, so every record needs a key; record\(s\) 0, 2"
        ) as error:
            topic.append([(None, "x"), ("a", "1"), (None, None)])
        assert error.value.indexes == (0, 2)
        assert topic.offsets() == {0: (0, 0)}
        assert list(local.base.root.files()) == []

    @pytest.mark.parametrize(
        ("records", "problem"),
        [
            ("text", "not a str"),
            ({"a": 1}, "not a dict"),
            (5, "not a int"),
            ([("a",)], "record 0 is"),
            (["ab"], "record 0 is 'ab'"),
            ([("a", "1"), (7, "2")], "record 1: its key is a int"),
            ([("a", 1.5)], "record 0: its value is a float"),
            ([("a", "1", "noon")], "record 0: its timestamp is a str"),
            ([("a", "1", None, (), "0")], "record 0: its partition is a str"),
            ([("a", "1", None, 7)], "record 0: 'int' object is not iterable"),
            ([("a", "1", None, [("h", 5)])], "record 0: its header's value is a int"),
            ([("a", "1", 2**70)], "a number does not fit"),
        ],
    )
    def test_what_is_no_record(self, local: Store, records: object, problem: str) -> None:
        with pytest.raises(InvalidRecordError, match=problem):
            local.create_topic("t").append(records)

    def test_nothing_appended_is_fine(self, local: Store) -> None:
        topic = local.create_topic("t")
        assert topic.append([]).records == 0
        assert topic.append(pa.table({"key": ["a"], "value": ["b"]}).slice(0, 0)).ranges == ()
        assert topic.offsets() == {0: (0, 0)}
