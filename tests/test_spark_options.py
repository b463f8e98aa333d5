"""The options of `format("lastword")`, and what becomes of them, without Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    StringType,
    StructField,
    StructType,
)

from lastword.errors import (
    DataLossError,
    InvalidArgumentError,
    LastwordError,
    UnknownTopicError,
)
from lastword.spark.asked import (
    Bound,
    Subscription,
    batch_reading,
    stream_reading,
    writing,
)
from lastword.spark.options import OPTIONS, Options
from lastword.spark.rows import arrow_schema, schema_for
from lastword.store import Store
from lastword.testing import ManualClock
from tests.notation import cleaned, write
from tests.spark_door import read_here, tasks, texts

TOPIC = {"subscribe": "t"}


def batch(**options: Any) -> Any:
    return batch_reading(Options(texts({**TOPIC, **options})))


def stream(**options: Any) -> Any:
    return stream_reading(Options(texts({**TOPIC, **options})))


class TestWhich:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"subscribe": "a, b,a"}, Subscription(names=("a", "b"))),
            ({"SUBSCRIBEPATTERN": "a.*"}, Subscription(pattern="a.*")),
            ({"assign": '{"a": [0, 2]}'}, Subscription(assigned=frozenset([("a", 0), ("a", 2)]))),
        ],
    )
    def test_subscription(self, options: dict[str, str], expected: Subscription) -> None:
        assert batch_reading(Options(options)).subscription == expected

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "give one of subscribe, subscribePattern, assign: none was given"),
            ({"subscribe": "a", "assign": "{}"}, "subscribe and assign was given"),
            ({"subscribe": " , "}, "names no topic"),
            ({"subscribePattern": "("}, r"'\(' is no regular expression"),
            ({"assign": "a"}, 'is JSON like {"topic": '),
            ({"assign": '{"a": ["0"]}'}, 'is JSON like {"topic": '),
            ({"assign": "{}"}, 'is JSON like {"topic": '),
        ],
    )
    def test_refused(self, options: dict[str, str], message: str) -> None:
        with pytest.raises(InvalidArgumentError, match=message):
            batch_reading(Options(options))


class TestWhere:
    def test_defaults(self) -> None:
        assert (batch().start, batch().end) == (Bound(-2), Bound(-1))
        assert stream().start == Bound(-1)

    def test_a_time_beats_times_which_beat_offsets(self) -> None:
        offsets, times = {"t": {"0": 3}}, {"t": {"0": 99}}
        for side, name in (("starting", "start"), ("ending", "end")):
            by_offset = {f"{side}Offsets": offsets}
            by_times = {f"{side}OffsetsByTimestamp": times, **by_offset}
            by_time = {f"{side}Timestamp": "1000", **by_times}
            assert getattr(batch(**by_offset), name) == Bound({("t", 0): 3})
            assert getattr(batch(**by_times), name) == Bound({("t", 0): 99}, is_time=True)
            assert getattr(batch(**by_time), name) == Bound(1000, is_time=True)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"startingOffsets": "latest"}, "a batch cannot start at latest"),
            ({"startingOffsets": {"t": {"0": -1}}}, "a batch cannot start at latest"),
            ({"endingOffsets": "earliest"}, "a batch cannot end at earliest"),
            ({"endingOffsets": {"t": {"0": -2}}}, "a batch cannot end at earliest"),
            ({"startingOffsets": "yesterday"}, "startingOffsets is a word or JSON"),
            ({"startingOffsets": {"t": {"0": "x"}}}, "startingOffsets is a word or JSON"),
            ({"startingOffsets": {"t": {"0": -3}}}, "an offset below -2"),
            ({"startingOffsets": {"t": [0]}}, "startingOffsets is a word or JSON"),
            ({"startingTimestamp": "noon"}, "startingTimestamp is a whole number"),
            ({"startingOffsets": {"t": {"0": 4}}, "endingOffsets": {"t": {"0": 3}}}, "t-0: the start 4 is beyond the end 3"),
            ({"startingOffsets": {"t": {"0": 4}}, "endingOffsets": {"t": {"1": 5}}}, "same partitions; t-0 is only in one"),
            ({"startingOffsetsByTimestampStrategy": "guess"}, "is error or latest, not 'guess'"),
            ({"minPartitions": "0"}, "minPartitions is a whole number from 1 on"),
            ({"ordered": "true", "minPartitions": "2"}, "leave minPartitions out"),
            ({"maxRecordsPerPartition": "-4"}, "maxRecordsPerPartition is a whole number from 1 on"),
            ({"failOnDataLoss": "maybe"}, "failOnDataLoss is true or false, not 'maybe'"),
            ({"view": "newest"}, "view is log or latest, not 'newest'"),
            ({"view": "latest", "startingOffsets": {"t": {"0": 4}}}, "leave the starting offsets out"),
            ({"view": "latest", "endingTimestamp": "4"}, "leave the ending offsets out"),
        ],
    )  # fmt: skip
    def test_refused_in_a_batch(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidArgumentError, match=message):
            batch(**options)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"endingOffsets": "latest"}, "a stream has no end: leave endingOffsets out"),
            ({"endingTimestamp": "1"}, "a stream has no end: leave endingTimestamp out"),
            ({"endingOffsetsByTimestamp": {"t": {"0": 1}}}, "a stream has no end"),
            ({"view": "latest"}, "a stream reads the log"),
            ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "5 is more than"),
            ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is a whole number from 1 on"),
            ({"maxTriggerDelay": "soon"}, "is a time like 30s, 15m or 1h, not 'soon'"),
        ],
    )
    def test_refused_in_a_stream(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidArgumentError, match=message):
            stream(**options)

    @pytest.mark.parametrize(
        ("text", "ms"), [("15m", 900_000), ("30 s", 30_000), ("250", 250), ("1H", 3_600_000)]
    )
    def test_durations(self, text: str, ms: int) -> None:
        assert stream(maxTriggerDelay=text).max_delay_ms == ms
        assert stream().max_delay_ms == 900_000


class TestNames:
    def test_a_slip_of_the_pen_is_an_error(self) -> None:
        with pytest.raises(InvalidArgumentError, match="did you mean 'startingOffsets'"):
            batch(startingOfsets="earliest")

    def test_what_is_for_a_broker_is_ignored(self) -> None:
        batch(**{"kafka.bootstrap.servers": "host:9092", "groupIdPrefix": "g", "someThing": "x"})

    @pytest.mark.parametrize("name", ["kafka.auto.offset.reset", "kafka.Key.Deserializer"])
    def test_what_kafkas_source_refuses(self, name: str) -> None:
        with pytest.raises(InvalidArgumentError, match="is not supported"):
            batch(**{name: "x"})

    def test_store_or_path(self) -> None:
        assert batch(path="p").store == "p"
        assert batch(path="p", store="s").store == "s"

    def test_names_are_listed_once(self) -> None:
        names = [option.name.lower() for option in OPTIONS]
        assert len(names) == len(set(names))
        assert all(set(option.queries) <= set("bsw") for option in OPTIONS)

    def test_a_writer_has_an_id_and_a_version(self) -> None:
        assert writing(Options({"writerId": "w", "writerVersion": "3"})).writer == ("w", 3)
        with pytest.raises(InvalidArgumentError, match="go together"):
            writing(Options({"writerId": "w"}))


class TestSchema:
    def test_as_kafkas(self) -> None:
        assert schema_for(Options({})).simpleString() == (
            "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
            "timestamp:timestamp,timestampType:int>"
        )
        with_headers = schema_for(Options({"includeHeaders": "true"}))
        assert with_headers.names[-1] == "headers"

    def test_fewer_columns(self) -> None:
        assert schema_for(Options({"columns": "offset, key"})).names == ["offset", "key"]
        with pytest.raises(InvalidArgumentError, match="no column 'ofset'; did you mean 'offset'"):
            schema_for(Options({"columns": "ofset"}))

    @pytest.mark.parametrize(
        ("field", "message"),
        [
            (("key", StringType()), "column 'key' is binary, not string; cast it after reading"),
            (("price", DoubleType()), "without a column 'price'"),
            (("Key", BinaryType()), "without a column 'Key'; did you mean 'key'"),
        ],
    )
    def test_another_schema_is_refused(self, field: tuple[str, DataType], message: str) -> None:
        with pytest.raises(InvalidArgumentError, match=message):
            arrow_schema(StructType([StructField(*field)]))


class TestPlan:
    """What is asked for, on a real store; the rows come from the tasks themselves."""

    @pytest.fixture
    def log(self, local: Store, clock: ManualClock) -> Store:
        topic = local.create_topic("t", 2, {"cleanup.policy": "compact,delete"})
        for p in range(2):
            for text in ("a=1 b=1", "a=2 c=1", "c=2 d=1*"):
                write(topic, text, partition=p)
                clock.advance(1_000)
        return local

    def test_everything(self, log: Store) -> None:
        assert [row[1:3] for row in read_here(log, **TOPIC)] == [
            (p, o) for p in range(2) for o in range(6)
        ]

    def test_offsets_must_name_every_partition(self, log: Store) -> None:
        with pytest.raises(InvalidArgumentError, match="t-1 is not named; -1 is latest"):
            tasks(log, **TOPIC, startingOffsets={"t": {"0": 1}})
        with pytest.raises(InvalidArgumentError, match="t-7 is not among those that are read"):
            tasks(log, **TOPIC, endingOffsets={"t": {"0": 1, "1": 1, "7": 1}})

    def test_unknown_topics_and_partitions(self, log: Store) -> None:
        with pytest.raises(UnknownTopicError, match="no topic 'tt'; did you mean 't'"):
            tasks(log, subscribe="tt")
        with pytest.raises(UnknownTopicError, match="topic 't' has no partition 9"):
            tasks(log, assign={"t": [0, 9]})
        assert tasks(log, subscribePattern="nothing.*") == []

    def test_a_pattern_is_for_the_whole_name(self, log: Store) -> None:
        log.create_topic("tt").append([("x", "1")])
        assert {row[0] for row in read_here(log, subscribePattern="t")} == {"t"}
        assert {row[0] for row in read_here(log, subscribePattern="t.*")} == {"t", "tt"}

    def test_some_partitions(self, log: Store) -> None:
        assert {row[1] for row in read_here(log, assign={"t": [1]})} == {1}

    def test_by_time(self, log: Store) -> None:
        first = log.base.clock() - 6_000
        assert len(read_here(log, **TOPIC, startingTimestamp=str(first + 1_000))) == 4 + 6
        assert len(read_here(log, **TOPIC, endingTimestamp=str(first + 1_000))) == 2
        times = {"t": {"0": first + 2_000, "1": first + 5_000}}
        late = read_here(log, **TOPIC, startingOffsetsByTimestamp=times)
        assert [row[1:3] for row in late] == [(0, 4), (0, 5), (1, 4), (1, 5)]

    def test_a_time_that_nothing_is_as_young_as(self, log: Store) -> None:
        late = {"startingTimestamp": str(log.base.clock())}
        with pytest.raises(InvalidArgumentError, match="t-0 has no record as young as"):
            tasks(log, **TOPIC, **late)
        assert tasks(log, **TOPIC, **late, startingOffsetsByTimestampStrategy="latest") == []
        assert len(read_here(log, **TOPIC, endingTimestamp=str(log.base.clock()))) == 12

    def test_data_loss(self, log: Store) -> None:
        log.topic("t").delete_records(0, 3)
        gone = {"startingOffsets": {"t": {"0": 1, "1": 0}}}
        with pytest.raises(DataLossError, match="t-0: offset 1 is below log start, which is 3"):
            tasks(log, **TOPIC, **gone)
        assert len(read_here(log, **TOPIC, **gone, failOnDataLoss=False)) == 3 + 6
        beyond = {"endingOffsets": {"t": {"0": 6, "1": 7}}}
        with pytest.raises(DataLossError, match="t-1: offset 7 is beyond log end, which is 6"):
            tasks(log, **TOPIC, **beyond)
        assert len(read_here(log, **TOPIC, **beyond, failOnDataLoss=False)) == 3 + 6

    def test_a_removed_offset_is_no_loss(self, log: Store) -> None:
        assert cleaned(log.topic("t"), 0) == "1:b=1 2:a=2 4:c=2 5:d=1"
        start = {"startingOffsets": {"t": {"0": 3, "1": 6}}}
        assert [row[2] for row in read_here(log, **TOPIC, **start)] == [4, 5]

    def test_tasks_are_cut_by_records(self, log: Store) -> None:
        assert [sum(p.records for p in t.pieces) for t in tasks(log, **TOPIC)] == [6, 6]
        for most in range(1, 8):
            cut = tasks(log, **TOPIC, maxRecordsPerPartition=most)
            assert max(sum(p.records for p in t.pieces) for t in cut) <= most
            assert [row[1:3] for t in cut for row in _rows(t)] == [
                (p, o) for p in range(2) for o in range(6)
            ]
        assert len(tasks(log, **TOPIC, minPartitions=5)) >= 5
        assert len(tasks(log, **TOPIC, minPartitions=1)) == 2

    def test_ordered(self, log: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lastword.spark.plan.TASK_BYTES", 1)
        assert len(tasks(log, **TOPIC)) > 2
        assert len(tasks(log, **TOPIC, ordered="true")) == 2

    def test_after_a_pass_tasks_are_cut_by_what_is_left(self, log: Store) -> None:
        """Offsets are no measure: five of six may be gone."""
        topic = log.create_topic("u")
        for n in range(50):
            topic.append([("a", str(n))])
        topic.append([(f"k{n}", "1") for n in range(50)])
        cleaned(topic)
        sizes = [
            sum(p.records for p in t.pieces) for t in tasks(log, subscribe="u", minPartitions=3)
        ]
        assert sizes == [17, 17, 17]

    def test_timestamp_types(self, log: Store) -> None:
        log.create_topic("u", config={"message.timestamp.type": "LogAppendTime"}).append(
            [("a", "1")]
        )
        assert [t.timestamp_type for t in tasks(log, subscribe="t,u")] == [0, 0, 1]

    def test_nothing_of_the_catalog_travels(self, log: Store) -> None:
        import pickle

        shipped = pickle.dumps(tasks(log, **TOPIC))
        assert not any(word in shipped for word in (b"lastword.catalog", b"sqlalchemy", b".db"))


def _rows(task: Any) -> list[Any]:
    from tests.spark_door import read

    return list(read([task]))


def test_every_error_is_ours(local: Store) -> None:
    with pytest.raises(LastwordError):
        tasks(local, subscribe="")
