"""Writing with `format("lastword")`: a DataFrame, all or nothing."""

from __future__ import annotations

import pickle
import random
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

import lastword
from lastword.errors import InvalidRecordError
from lastword.log.staging import Staging
from lastword.partitioner import partition_for
from lastword.spark import by_partition
from lastword.spark.source import LastwordDataSource
from lastword.store import Store
from tests.notation import live_paths, shown
from tests.spark_door import refused
from tests.waiting import until


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def save(frame: DataFrame, url: str, mode: str = "append", **options: str) -> None:
    frame.write.format("lastword").options(store=url, **options).mode(mode).save()


def pairs(spark: SparkSession, count: int, tasks: int = 1) -> DataFrame:
    """k0=0 k1=1 …, in so many Spark partitions."""
    numbers = spark.range(0, count, 1, tasks)
    return numbers.selectExpr("concat('k', id) AS key", "string(id) AS value")


class TestRows:
    def test_all_columns(self, local: Store, url: str, spark: SparkSession) -> None:
        topic = local.create_topic("t", 3)
        rows = spark.sql(
            "SELECT 'a' AS key, X'01' AS value, 2 AS partition, "
            "timestamp_millis(1700000000123) AS timestamp, "
            "array(named_struct('key', 'h', 'value', X'02')) AS headers, 'ignored' AS more"
        )
        save(rows, url, topic="t")
        (record,) = topic.read(2)
        assert record[:4] == (b"a", b"\x01", 1_700_000_000_123, (("h", b"\x02"),))

    def test_text_is_utf8_and_null_a_tombstone(
        self, local: Store, url: str, spark: SparkSession
    ) -> None:
        topic = local.create_topic("t")
        rows = [("é", "1"), ("b", None)]
        before_ms = int(time.time() * 1000)
        save(spark.createDataFrame(rows, "key string, value string"), url, topic="t")
        found = list(topic.read())
        assert [(r.key, r.value) for r in found] == [("é".encode(), b"1"), (b"b", None)]
        assert all(r.timestamp >= before_ms for r in found)  # type: ignore[operator]

    def test_keys_land_where_kafka_puts_them(
        self, local: Store, url: str, spark: SparkSession
    ) -> None:
        topic = local.create_topic("t", 7)
        save(pairs(spark, 100, tasks=3), url, topic="t")
        for record in topic.read():
            assert record.partition == partition_for(pa.array([record.key], pa.binary()), 7)[0]

    def test_a_partition_of_null_is_chosen_by_the_key(
        self, local: Store, url: str, spark: SparkSession
    ) -> None:
        topic = local.create_topic("t", 2)
        rows = spark.sql(
            "SELECT 'k1' AS key, 'x' AS value, p AS partition FROM VALUES (NULL), (0), (1) AS t(p)"
        )
        save(rows, url, topic="t")
        assert sorted(r.partition or 0 for r in topic.read()) == [0, 1, 1]

    def test_without_keys(self, local: Store, url: str, spark: SparkSession) -> None:
        topic = local.create_topic("t", 2, {"cleanup.policy": "delete"})
        save(pairs(spark, 6, tasks=3).select("value"), url, topic="t")
        assert topic.offsets() == {0: (0, 3), 1: (0, 3)}  # round robin

    def test_a_column_says_which_topic(self, local: Store, url: str, spark: SparkSession) -> None:
        for name in ("a", "b"):
            local.create_topic(name)
        rows = [("a", "k", "1"), ("b", "k", "2"), ("a", "k", "3")]
        frame = spark.createDataFrame(rows, "topic string, key string, value string")
        save(frame.coalesce(1), url)
        assert [shown(local.topic(n)) for n in "ab"] == ["k=1 k=3*", "k=2*"]
        save(frame.coalesce(1), url, topic="b")  # which beats the column
        assert shown(local.topic("b")) == "k=2 k=1 k=2 k=3*"

    def test_order(self, local: Store, url: str, spark: SparkSession) -> None:
        """Rows keep their order in a Spark partition, and those are taken in order."""
        topic = local.create_topic("t")
        save(pairs(spark, 1_000, tasks=5), url, topic="t")
        assert [r.value for r in topic.read(0)] == [str(n).encode() for n in range(1_000)]


class TestFiles:
    def test_one_per_task_and_partition(self, local: Store, url: str, spark: SparkSession) -> None:
        topic = local.create_topic("t", 2)
        save(pairs(spark, 90_000, tasks=3), url, topic="t")
        assert [len(live_paths(topic, p)) for p in range(2)] == [3, 3]

    def test_by_partition_makes_it_one(self, local: Store, url: str, spark: SparkSession) -> None:
        topic = local.create_topic("t", 4)
        frame = pairs(spark, 2_000, tasks=5).withColumn("n", f.expr("int(value)"))
        save(by_partition(frame, "t", store=url, order_by=["n"]), url, topic="t")
        assert [len(live_paths(topic, p)) for p in range(4)] == [1] * 4
        for p in range(4):
            found = [int(r.value or 0) for r in topic.read(p)]
            assert found == sorted(found)
        assert sum(1 for _ in topic.read()) == 2_000
        for record in topic.read():
            assert record.partition == partition_for(pa.array([record.key], pa.binary()), 4)[0]

    def test_by_partition_respects_a_chosen_one(
        self, local: Store, url: str, spark: SparkSession
    ) -> None:
        local.create_topic("t", 2)
        rows = pairs(spark, 10).withColumn("partition", f.lit(1))
        spread = by_partition(rows, "t", store=url)
        assert {row.partition for row in spread.collect()} == {1}

    def test_a_file_ends_where_a_segment_does(self, local: Store) -> None:
        topic = local.create_topic(
            "t", config={"segment.bytes": 1 << 20, "compression.type": "uncompressed"}
        )
        rows = pa.table({"key": ["k"] * 5, "value": [random.randbytes(1 << 20) for _ in range(5)]})
        with Staging(local.base.root, local.base.clock) as staging:
            for i in range(5):
                staging.add(topic.prepare(rows.slice(i, 1), 1))
                staging._write(staging._partitions[topic.id, 0])
            staged = staging.finish()
        assert [s.facts.records for s in staged] == [1] * 5

    def test_memory_is_bounded(self, local: Store) -> None:
        """What has gathered for many partitions is written before it is too much."""
        topic = local.create_topic("t", 50, {"compression.type": "uncompressed"})
        value = bytes(200_000)
        with Staging(local.base.root, local.base.clock) as staging:
            for n in range(800):
                rows = pa.table({"key": [str(n)], "value": [value], "partition": [n % 50]})
                staging.add(topic.prepare(rows, 1))
                assert staging._gathered_bytes < 70_000_000
            staged = staging.finish()
        assert len(staged) == 50
        assert sum(s.facts.records for s in staged) == 800

    def test_a_staging_that_fails_leaves_nothing(self, local: Store) -> None:
        topic = local.create_topic("t", 2)
        batch = topic.prepare([("a", "1"), ("b", "2")], 1)
        with suppress(RuntimeError), Staging(local.base.root, local.base.clock) as staging:
            staging.add(batch)
            staging._write(next(iter(staging._partitions.values())))
            assert len(list(local.base.root.files())) == 1
            raise RuntimeError
        assert list(local.base.root.files()) == []


class TestRefused:
    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ("SELECT 'a' AS key", "no column 'value' among key; a null value is a tombstone"),
            ("SELECT 1 AS key, 'x' AS value", "column 'key' is int; it must be string or binary"),
            ("SELECT 'a' AS key, 1.5 AS value", "column 'value' is decimal(2,1)"),
            ("SELECT 'a' AS key, 'x' AS value, 'p' AS partition", "column 'partition' is string"),
            ("SELECT 'a' AS key, 'x' AS value, 5 AS timestamp", "column 'timestamp' is int"),
            ("SELECT 'a' AS key, 'x' AS value, 'h' AS headers", "it must be array<struct<key:string"),
            ("SELECT 'a' AS key, 'x' AS value, 9 AS partition", "has partitions 0 to 0; record(s) 0"),
            ("SELECT string(NULL) AS key, 'x' AS value", "so every record needs a key"),
        ],
    )  # fmt: skip
    def test_rows(
        self, local: Store, url: str, spark: SparkSession, query: str, message: str
    ) -> None:
        topic = local.create_topic("t")
        assert message in refused(lambda: save(spark.sql(query), url, topic="t"))
        assert topic.offsets() == {0: (0, 0)}

    def test_topics(self, local: Store, url: str, spark: SparkSession) -> None:
        local.create_topic("topic")
        rows = spark.sql("SELECT 'a' AS key, 'x' AS value")
        assert "say which topic" in refused(lambda: save(rows, url))
        message = refused(lambda: save(rows, url, topic="topik"))
        assert "UnknownTopicError: no topic 'topik'; did you mean 'topic'?" in message
        named = rows.withColumn("topic", f.lit("topik"))
        assert "no topic 'topik'; did you mean 'topic'?" in refused(lambda: save(named, url))
        null = rows.withColumn("topic", f.lit(None).cast("string"))
        assert "a row has no topic: its column 'topic' is null" in refused(lambda: save(null, url))

    def test_modes(self, local: Store, url: str, spark: SparkSession) -> None:
        topic = local.create_topic("t")
        rows = pairs(spark, 3)
        message = refused(lambda: save(rows, url, mode="overwrite", topic="t"))
        assert "a log is only appended to: use mode append" in message
        for mode in ("ignore", "errorifexists"):  # by Spark itself
            with pytest.raises(Exception, match="(?i)mode"):
                save(rows, url, mode=mode, topic="t")
        assert topic.offsets() == {0: (0, 0)}


class TestAllOrNothing:
    def test_a_task_that_fails(self, local: Store, url: str, spark: SparkSession) -> None:
        """The others have staged files; none is appended, and gc deletes them."""
        topic = local.create_topic("t")
        bad = pairs(spark, 100, tasks=4).withColumn("key", f.expr("if(value = '99', NULL, key)"))
        assert "needs a key" in refused(lambda: save(bad, url, topic="t"))
        assert topic.offsets() == {0: (0, 0)}
        with lastword.open(url) as now:  # by the wall clock, which Spark has

            def is_empty() -> bool:
                now.gc(orphan_age_ms=0)
                return not list(now.base.root.files())

            until(is_empty)  # a task may end some time after Spark has given up
            assert now.check(orphan_age_ms=0).is_clean

    def test_a_task_that_is_tried_again(self, local: Store, url: str, tmp_path: Path) -> None:
        """Each task dies once after it has staged all; see the cluster's tests for real ones."""
        from lastword.catalog import queries
        from lastword.spark.write_task import WriteTask

        topic = local.create_topic("t")
        sink = WriteTask(local.base.root, {"t": topic.row}, "t", ("key", "value"))
        batch = pa.RecordBatch.from_pydict({"key": ["a"], "value": ["1"]})
        lost, kept = sink.write(iter([batch])), sink.write(iter([batch]))
        schema = StructType().add("key", "string").add("value", "string")
        writer = LastwordDataSource({"store": url, "topic": "t"}).writer(schema, overwrite=False)
        writer.commit([kept, None])
        assert topic.offsets() == {0: (0, 1)}
        assert queries.is_live(local.base.catalog, kept.files[0].facts.path)
        writer.abort([lost])
        with lastword.open(url) as now:
            now.gc()
        assert len(list(local.base.root.files())) == 1

    def test_abort_after_a_commit_deletes_nothing(self, local: Store, url: str) -> None:
        """Spark aborts where a commit raised, though the database may have done it."""
        topic = local.create_topic("t")
        schema = StructType().add("key", "string").add("value", "string")
        writer = LastwordDataSource({"store": url, "topic": "t"}).writer(schema, overwrite=False)
        done = writer.write(iter([pa.RecordBatch.from_pydict({"key": ["a"], "value": ["1"]})]))
        writer.commit([done])
        writer.abort([done])
        with lastword.open(url) as now:
            now.gc()
        assert shown(topic) == "a=1*"

    def test_no_commit_after_an_abort(self, local: Store, url: str) -> None:
        topic = local.create_topic("t")
        schema = StructType().add("key", "string").add("value", "string")
        writer = LastwordDataSource({"store": url, "topic": "t"}).writer(schema, overwrite=False)
        done = writer.write(iter([pa.RecordBatch.from_pydict({"key": ["a"], "value": ["1"]})]))
        writer.abort([done])
        with pytest.raises(Exception, match="took it for an orphan"):
            writer.commit([done])
        assert topic.offsets() == {0: (0, 0)}

    def test_a_topic_that_was_made_anew_meanwhile(self, local: Store, url: str) -> None:
        topic = local.create_topic("t")
        schema = StructType().add("key", "string").add("value", "string")
        writer = LastwordDataSource({"store": url, "topic": "t"}).writer(schema, overwrite=False)
        done = writer.write(iter([pa.RecordBatch.from_pydict({"key": ["a"], "value": ["1"]})]))
        topic.delete()
        local.create_topic("t")
        with pytest.raises(Exception, match="no topic 't'"):
            writer.commit([done])
        assert local.topic("t").offsets() == {0: (0, 0)}


class TestExactlyOnce:
    def test_the_same_version_again_writes_nothing(
        self, local: Store, url: str, spark: SparkSession
    ) -> None:
        topic = local.create_topic("t")
        for _ in range(2):
            save(pairs(spark, 3), url, topic="t", writerId="w", writerVersion="1")
        assert topic.offsets() == {0: (0, 3)}
        save(pairs(spark, 3), url, topic="t", writerId="w", writerVersion="2")
        assert topic.offsets() == {0: (0, 6)}
        message = refused(
            lambda: save(pairs(spark, 3), url, topic="t", writerId="w", writerVersion="1")
        )
        assert "StaleWriterError: writer 'w' appended version 2 already" in message

    def test_every_catalog(self, store: Store, catalog_url: str, spark: SparkSession) -> None:
        topic = store.create_topic("t", 2)
        save(pairs(spark, 10), catalog_url, topic="t", writerId="w", writerVersion="1")
        assert sum(1 for _ in topic.read()) == 10

    def test_every_file_system(self, any_data: Store, data_url: str, spark: SparkSession) -> None:
        topic = any_data.create_topic("t", 2)
        save(pairs(spark, 10, tasks=2), data_url, topic="t")
        assert sum(1 for _ in topic.read()) == 10


def test_a_password_does_not_travel_to_tasks(tmp_path: Path) -> None:
    """A batch writer is pickled for the tasks, then for the commit; only that may have the URL."""
    url = f"file://{tmp_path}/HUSHHUSH?data_root={tmp_path}/data"
    with lastword.open(url) as store:
        store.create_topic("t")
    schema = StructType().add("key", "string").add("value", "string")
    source = LastwordDataSource({"store": url, "topic": "t"})
    writer = source.writer(schema, overwrite=False)
    for_tasks, for_commit = pickle.dumps(writer), pickle.dumps(writer)
    assert b"HUSHHUSH" not in for_tasks
    assert b"HUSHHUSH" in for_commit
    stream_writer = source.streamWriter(schema, overwrite=False)
    assert b"HUSHHUSH" not in pickle.dumps(stream_writer)


def test_what_a_task_refuses_is_told_by_index(local: Store) -> None:
    from lastword.spark.write_task import WriteTask

    topic = local.create_topic("t")
    sink = WriteTask(local.base.root, {"t": topic.row}, "t", ("key", "value"))
    batch = pa.RecordBatch.from_pydict({"key": ["a", None], "value": ["1", "2"]})
    with pytest.raises(InvalidRecordError, match=r"record\(s\) 1 came without one"):
        sink.write(iter([batch]))
    assert list(local.base.root.files()) == []
