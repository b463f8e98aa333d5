"""`format("lastword")` and the fast path, in batches, through Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

import lastword
from lastword.spark import dataframe
from lastword.store import Store
from lastword.testing import ManualClock
from tests.conftest import new_store
from tests.notation import clean, live_paths, write
from tests.spark_door import frame, in_log, refused, rows
from tests.test_cleaner import ADDRESS_BOOK


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def log(local: Store, clock: ManualClock) -> Store:
    """Two topics: one of two partitions that was cleaned once, and one of headers and a null key."""
    topic = local.create_topic("t", 2, {"cleanup.policy": "compact,delete"})
    for p in range(2):
        write(topic, "a=1 b=1 | a=2 c=∅ | c=1 b=∅*", partition=p)
    clean(topic)
    write(topic, "a=3 d=1*", partition=1)
    other = local.create_topic("u", config={"cleanup.policy": "delete"})
    other.append([(None, "x", 1_700_000_000_123, {"h": b"1", "i": None}), ("k", None)])
    return local


@pytest.fixture(params=["format", "native"])
def reader(request: pytest.FixtureRequest, spark: SparkSession, url: str) -> Any:
    """Both ways to read: the data source, and Spark's own Parquet reader."""

    def read(**options: Any) -> DataFrame:
        where = options.pop("store", url)
        if request.param == "native":
            return dataframe(spark, store=where, **options)
        return frame(spark, where, **options)

    return read


class TestBothWays:
    def test_rows_are_those_of_kafkas_source(self, log: Store, reader: Any) -> None:
        found = reader(subscribe="u", includeHeaders=True)
        assert found.schema.simpleString() == (
            "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
            "timestamp:timestamp,timestampType:int,"
            "headers:array<struct<key:string,value:binary>>>"
        )
        first, second = found.orderBy("offset").collect()
        assert (first.key, bytes(first.value), first.topic) == (None, b"x", "u")
        assert (first.partition, first.offset, first.timestampType) == (0, 0, 0)
        assert first.timestamp.timestamp() == 1_700_000_000.123
        assert [(h.key, h.value) for h in first.headers] == [("h", b"1"), ("i", None)]
        assert (bytes(second.key), second.value, second.headers) == (b"k", None, None)

    def test_what_is_in_the_log(self, log: Store, reader: Any) -> None:
        assert rows(reader(subscribe="t,u")) == sorted(in_log(log, "t", "u"), key=lambda r: r[:3])
        assert {row[0] for row in rows(reader(subscribePattern="[tu]"))} == {"t", "u"}
        assert {row[1] for row in rows(reader(assign={"t": [1]}))} == {1}

    def test_some_of_it(self, log: Store, reader: Any) -> None:
        bounds = {
            "startingOffsets": {"t": {"0": 3, "1": 4}},
            "endingOffsets": {"t": {"0": 5, "1": -1}},
        }
        found = rows(reader(subscribe="t", **bounds))
        assert [row[1:3] for row in found] == [(0, 4), (1, 4), (1, 5), (1, 6), (1, 7)]

    def test_log_start_cuts_through_a_file(self, log: Store, reader: Any) -> None:
        log.topic("t").delete_records(1, 7)
        assert [r[2] for r in rows(reader(assign={"t": [1]}))] == [7]

    def test_a_topic_without_records(self, log: Store, reader: Any) -> None:
        log.create_topic("empty")
        found = reader(subscribe="empty")
        assert (found.count(), found.columns[0]) == (0, "key")

    def test_latest(self, log: Store, reader: Any) -> None:
        found = rows(reader(subscribe="t", view="latest"))
        assert [row[1:] for row in found] == [
            (0, 2, b"a", b"2"),
            (0, 4, b"c", b"1"),
            (1, 4, b"c", b"1"),
            (1, 6, b"a", b"3"),
            (1, 7, b"d", b"1"),
        ]

    def test_columns(self, log: Store, reader: Any) -> None:
        found = reader(subscribe="t", columns="offset,key")
        assert found.columns == ["offset", "key"]
        assert {bytes(r.key) for r in found.where("offset >= 6").collect()} == {b"a", b"d"}

    def test_data_loss(self, log: Store, reader: Any) -> None:
        log.topic("t").delete_records(0, 4)
        start = {"startingOffsets": {"t": {"0": 1, "1": 0}}}
        message = refused(lambda: reader(subscribe="t", **start).collect())
        assert "t-0: offset 1 is below log start, which is 4 now" in message
        found = rows(reader(subscribe="t", failOnDataLoss=False, **start))
        assert [row[2] for row in found if row[1] == 0] == [4, 5]

    def test_a_flipped_bit_is_noticed(self, log: Store, reader: Any) -> None:
        topic = log.create_topic("v", config={"compression.type": "uncompressed"})
        topic.append([("key", "value" * 100)])
        path = Path(log.base.root.full(live_paths(topic)[0]))
        damaged = bytearray(path.read_bytes())
        damaged[damaged.index(b"valuevalue") + 30] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(Exception, match=r"(?i)crc|checksum"):
            reader(subscribe="v").collect()

    @pytest.mark.parametrize("name", ["plain", "sp ace", "a[b]{c},d*", "k=v", "p%20q", "_x"])
    def test_any_folder(self, name: str, tmp_path: Path, spark: SparkSession, reader: Any) -> None:
        with lastword.open(tmp_path / name / "store") as store:
            store.create_topic("_t").append([("a", "1")])
        assert len(rows(reader(subscribe="_t", store=str(tmp_path / name / "store")))) == 1


class TestFormat:
    def test_a_plan_outlives_a_pass(
        self, log: Store, url: str, spark: SparkSession, clock: ManualClock
    ) -> None:
        """Files that a pass retires stay for a while: who has planned can still read."""
        before = in_log(log, "t")
        slow, fast = frame(spark, url, subscribe="t"), dataframe(spark, "t", store=url)
        assert rows(slow) == rows(fast) == before
        clean(log.topic("t"))
        log.gc(orphan_age_ms=0)
        assert rows(slow) == rows(fast) == before
        assert rows(frame(spark, url, subscribe="t")) == in_log(log, "t") != before
        clock.advance(3_600_001)
        log.gc(orphan_age_ms=0)
        assert "is gone; if this query was planned more than" in refused(slow.collect)
        with pytest.raises(Exception, match="FILE_NOT_EXIST"):
            fast.collect()

    def test_a_dataframe_is_the_topic_of_its_first_action(
        self, log: Store, url: str, spark: SparkSession
    ) -> None:
        found = frame(spark, url, subscribe="u")
        log.topic("u").append([("new", "1")])
        assert found.count() == 3
        log.topic("u").append([("newer", "1")])
        assert found.count() == 3
        assert frame(spark, url, subscribe="u").count() == 4

    def test_options_in_any_case_and_the_store_as_path(
        self, log: Store, url: str, spark: SparkSession
    ) -> None:
        assert spark.read.format("LastWord").option("SUBSCRIBE", "u").load(url).count() == 2

    def test_a_schema_with_fewer_columns(self, log: Store, url: str, spark: SparkSession) -> None:
        reader = spark.read.format("lastword").options(store=url, subscribe="u")
        found = reader.schema("offset long not null, topic string").load()
        assert [tuple(row) for row in found.collect()] == [(0, "u"), (1, "u")]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "InvalidArgumentError: give one of subscribe, subscribePattern, assign"),
            ({"subscribe": "tt"}, "UnknownTopicError: no topic 'tt'; did you mean 't'?"),
            ({"subscribe": "t", "startingOffsets": "latest"}, "a batch cannot start at latest"),
            ({"subscribe": "t", "store": "/nowhere"}, "NotAStoreError: /nowhere: no store is there"),
            ({"subscribe": "t", "startingOfset": "1"}, "did you mean 'startingOffsets'?"),
        ],
    )  # fmt: skip
    def test_errors_are_ours(
        self, log: Store, url: str, spark: SparkSession, options: dict[str, str], message: str
    ) -> None:
        query = spark.read.format("lastword").options(**{"store": url, **options})
        assert message in refused(lambda: query.load().collect())

    def test_a_schema_that_is_not_ours_is_refused(
        self, log: Store, url: str, spark: SparkSession
    ) -> None:
        reader = spark.read.format("lastword").options(store=url, subscribe="t")
        message = refused(lambda: reader.schema("key string").load().collect())
        assert "column 'key' is binary, not string; cast it after reading" in message
        message = refused(lambda: reader.schema("price double").load().collect())
        assert "the source has a fixed schema, without a column 'price'" in message

    def test_tasks(self, log: Store, url: str, spark: SparkSession) -> None:
        assert frame(spark, url, subscribe="t").rdd.getNumPartitions() == 2
        many = frame(spark, url, subscribe="t", maxRecordsPerPartition=1)
        assert many.rdd.getNumPartitions() == len(in_log(log, "t"))
        assert rows(many) == in_log(log, "t")


class OddSource(DataSource):
    """Ten numbers; pushed down, a filter leaves the even ones out."""

    @classmethod
    def name(cls) -> str:
        return "odd"

    def schema(self) -> str:
        return "n int"

    def reader(self, schema: StructType) -> DataSourceReader:
        return OddReader()


class OddReader(DataSourceReader):
    step = 1

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.step = 2
        return filters

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return ((n,) for n in range(1, 11, self.step))


class TestPushedFilters:
    """Decision 14: we take none."""

    @pytest.fixture(autouse=True)
    def pushed(self, spark: SparkSession) -> Iterator[None]:
        name = "spark.sql.python.filterPushdown.enabled"
        spark.conf.set(name, "true")
        yield
        spark.conf.unset(name)

    def test_spark_still_mixes_up_what_it_pushes(self, spark: SparkSession) -> None:
        """If this fails, Spark has mended it, and filters can be taken."""
        spark.dataSource.register(OddSource)
        numbers = spark.read.format("odd").load()
        assert numbers.where("n > 0").count() == 5
        assert numbers.count() == 5  # which should be ten

    def test_so_we_take_none(self, log: Store, url: str, spark: SparkSession) -> None:
        found = frame(spark, url, subscribe="t")
        one, other = found.where("partition = 1"), found.where("partition = 0")
        assert (one.count(), other.count(), found.count()) == (5, 3, 8)
        assert one.union(other).count() == 8

    def test_sparks_own_reader_gets_them(
        self, log: Store, url: str, spark: SparkSession, capsys: pytest.CaptureFixture[str]
    ) -> None:
        dataframe(spark, "t", store=url).where("key = X'61' and timestamp > '2020-01-01'").explain()
        pushed = capsys.readouterr().out.partition("PushedFilters: [")[2]
        assert "EqualTo(key,[B@" in pushed
        assert "GreaterThan(timestamp,2020-01-01" in pushed


class TestSql:
    def test_views(self, log: Store, url: str, spark: SparkSession) -> None:
        spark.sql(
            "CREATE OR REPLACE TEMPORARY VIEW latest_t USING lastword "
            f"OPTIONS (store '{url}', subscribe 't', view 'latest')"
        )
        found = spark.sql("SELECT decode(key, 'UTF-8') k, count(*) n FROM latest_t GROUP BY k")
        assert {row.k: row.n for row in found.collect()} == {"a": 2, "c": 2, "d": 1}
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW u USING lastword OPTIONS (store '{url}', subscribe 'u')"
        )
        spark.sql("INSERT INTO u SELECT * FROM u WHERE key IS NOT NULL")
        assert log.topic("u").offsets() == {0: (0, 3)}

    def test_spark_sql_by_itself(self, log: Store, url: str, tmp_path: Path) -> None:
        """Found without registration, where nothing of ours was imported."""
        query = (
            f"CREATE TEMPORARY VIEW t USING lastword OPTIONS (store '{url}', subscribe 't'); "
            "SELECT 'records', count(*) FROM t"
        )
        assert "records\t8" in _said(tmp_path, "spark-sql", "-e", query)


def _said(folder: Path, command: str, *words: str) -> str:
    """What a command of Spark's printed, run in this virtual environment."""
    binaries = Path(sys.executable).parent
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK"))},
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    quick = {
        "spark.ui.enabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    conf = [word for name, value in quick.items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [str(binaries / command), "--master", "local[1]", *conf, *words],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


class TestWhereStoresAre:
    def test_every_file_system(self, any_data: Store, data_url: str, spark: SparkSession) -> None:
        any_data.create_topic("users").append(ADDRESS_BOOK)
        for view, count in (("log", 6), ("latest", 3)):
            options = {"store": data_url, "subscribe": "users", "view": view}
            assert spark.read.format("lastword").options(**options).load().count() == count
            assert dataframe(spark, "users", store=data_url, view=view).count() == count

    def test_every_catalog(self, store: Store, catalog_url: str, spark: SparkSession) -> None:
        store.create_topic("users").append(ADDRESS_BOOK)
        assert frame(spark, catalog_url, subscribe="users").count() == 6

    def test_a_password_does_not_travel(
        self, tmp_path: Path, spark: SparkSession, clock: ManualClock
    ) -> None:
        """Neither readers nor the data source take the store's URL along to the tasks."""
        import pickle

        from lastword.spark.options import Options
        from lastword.spark.rows import schema_for
        from lastword.spark.source import LastwordDataSource

        url = f"file://{tmp_path}/HUSHHUSH?data_root={tmp_path}/data"
        with new_store(url, clock) as store:
            store.create_topic("t").append([("a", "1")])
        for make in ("reader", "streamReader"):
            source = LastwordDataSource({"store": url, "subscribe": "t"})
            reader = getattr(source, make)(schema_for(Options({})))
            assert b"HUSHHUSH" not in pickle.dumps((source, reader))
            ends = [{"t": {"0": 0}}, {"t": {"0": 1}}] if make == "streamReader" else []
            assert b"HUSHHUSH" not in pickle.dumps(reader.partitions(*ends))


def test_a_consistent_moment(local: Store, url: str, spark: SparkSession) -> None:
    """An append over all partitions is seen whole, or not at all, while it goes on and on."""
    import threading

    topic = local.create_topic("t", 8)
    stop = threading.Event()

    def write_on() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            topic.append([(f"k{p}", str(n), None, (), p) for p in range(8)])

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        for view in ("log", "latest") * 2:
            found = frame(spark, url, subscribe="t", view=view)
            ends = found.groupBy("partition").agg(f.max("offset").alias("last")).collect()
            assert len({row["last"] for row in ends}) <= 1
    finally:
        stop.set()
        writer.join()


CONNECT = textwrap.dedent(
    """
    import sys
    from pyspark.sql import SparkSession
    from lastword.spark import by_partition, dataframe

    url, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    source = {"store": url, "subscribe": "u"}
    rows = spark.createDataFrame([("a", "1"), ("b", "2")], "key string, value string")
    spread = by_partition(rows, "u", store=url)
    spread.write.format("lastword").options(store=url, topic="u").mode("append").save()
    stream = spark.readStream.format("lastword").options(**source, startingOffsets="earliest").load()
    sink = stream.writeStream.format("lastword").option("checkpointLocation", checkpoint)
    sink.options(store=url, topic="t").trigger(availableNow=True).start().awaitTermination()
    latest = spark.read.format("lastword").options(**source, view="latest").load()
    print(type(spark).__module__, latest.count(), dataframe(spark, "u", store=url).count())
    """
)


def test_spark_connect(local: Store, url: str, tmp_path: Path) -> None:
    """Both ways to read, a write and a stream, from a client that has no JVM of its own."""
    pytest.importorskip("grpc", reason="no pyspark[connect] here")
    for name in ("t", "u"):
        local.create_topic(name)
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, url, str(tmp_path / "checkpoint")],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1].endswith("pyspark.sql.connect.session 2 2")
    assert sum(1 for _ in local.topic("t").read()) == 2
