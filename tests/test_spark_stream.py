"""Streams: `format("lastword")` as source and as sink, killed and restarted."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import lastword
from lastword.store import Store
from lastword.topic import Topic
from tests.conftest import postgres_store_url
from tests.notation import clean, shown, write
from tests.soak import times
from tests.spark_door import refused, texts
from tests.test_cleaner_spark import _workers
from tests.waiting import until


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store")


class Streams:
    """Streaming queries on one store, each with a checkpoint of its own name."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.spark, self.url, self.folder = spark, url, folder

    def source(self, **options: Any) -> DataFrame:
        given = {"store": self.url, "startingOffsets": "earliest", **texts(options)}
        return self.spark.readStream.format("lastword").options(**given).load()

    def start(
        self, frame: DataFrame, name: str = "q", mode: str = "append", **options: Any
    ) -> StreamingQuery:
        where = {"store": self.url, "checkpointLocation": str(self.folder / name), **options}
        writer = (
            frame.drop("partition").writeStream.format("lastword").outputMode(mode).options(**where)
        )
        return writer.trigger(processingTime="0 seconds").start()

    def drain(
        self, frame: DataFrame, name: str = "q", mode: str = "append", **options: Any
    ) -> list[dict[str, Any]]:
        """Run until all that is there is written; the batches' progress."""
        where = {"store": self.url, "checkpointLocation": str(self.folder / name), **options}
        writer = (
            frame.drop("partition").writeStream.format("lastword").outputMode(mode).options(**where)
        )
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(300)
        assert not query.isActive
        return [p for p in query.recentProgress if p["numInputRows"]]


@pytest.fixture
def streams(spark: SparkSession, url: str, tmp_path: Path) -> Streams:
    return Streams(spark, url, tmp_path)


def values(topic: Topic) -> list[bytes | None]:
    return [r.value for r in topic.read()]  # type: ignore[misc]


class TestSource:
    def test_a_group_of_its_own(self, local: Store, streams: Streams) -> None:
        source, _ = local.create_topic("in", 2), local.create_topic("out")
        source.append([(f"k{n}", str(n)) for n in range(10)])
        frame = streams.source(subscribe="in", **{"kafka.group.id": "copier"})
        streams.drain(frame, topic="out")
        source.append([("k1", "new")])
        streams.drain(frame, topic="out")
        described = local.group("copier").describe()  # Spark commits a batch when the next begins
        assert sum(p.committed or 0 for p in described.partitions) == 10
        assert sum(p.lag.records for p in described.partitions) == 1

    def test_it_goes_on_where_it_was(self, local: Store, streams: Streams) -> None:
        source, out = local.create_topic("in", 2), local.create_topic("out")
        source.append([(f"k{n}", str(n)) for n in range(10)])
        (first,) = streams.drain(streams.source(subscribe="in"), topic="out")
        assert first["numInputRows"] == 10
        ends = {str(p): end for p, (_, end) in source.offsets().items()}
        assert json.loads(first["sources"][0]["endOffset"]) == {"in": ends}
        source.append([("x", "new")])
        (second,) = streams.drain(streams.source(subscribe="in"), topic="out")
        assert (second["numInputRows"], second["batchId"]) == (1, first["batchId"] + 1)
        assert streams.drain(streams.source(subscribe="in"), topic="out") == []
        assert sorted(map(str, values(out))) == sorted(map(str, values(source)))

    def test_latest_is_the_end_at_the_first_trigger(self, local: Store, streams: Streams) -> None:
        source, out = local.create_topic("in", 2), local.create_topic("out")
        source.append([("old", "1")])
        frame = streams.source(subscribe="in", startingOffsets="latest")
        assert streams.drain(frame, topic="out") == []
        source.append([("new", "2")])
        streams.drain(frame, topic="out")
        assert values(out) == [b"2"]

    def test_portions(self, local: Store, streams: Streams) -> None:
        source, _ = local.create_topic("in", 2), local.create_topic("out")
        for n in range(8):
            source.append([(key, str(n)) for key in "abcdefgh"])
        clean(source)
        left = len(values(source))
        frame = streams.source(subscribe="in", maxOffsetsPerTrigger="4")
        batches = streams.drain(frame, topic="out")
        assert (sum(p["numInputRows"] for p in batches), left) == (8, 8)
        assert max(p["numInputRows"] for p in batches) <= 4

    def test_by_time_and_some_partitions(self, local: Store, streams: Streams) -> None:
        source, out = local.create_topic("in", 2), local.create_topic("out")
        stamps = [1_000, 2_000, 3_000]
        source.append([("k", str(t), t, (), p) for t in stamps for p in range(2)])
        frame = streams.source(assign={"in": [1]}, startingTimestamp="2000")
        streams.drain(frame, topic="out")
        assert values(out) == [b"2000", b"3000"]

    def test_new_topics_and_partitions(self, local: Store, streams: Streams) -> None:
        first, out = local.create_topic("in-1"), local.create_topic("out")
        first.append([("a", "1")])
        frame = streams.source(subscribePattern="in-.*", startingOffsets="latest")
        query = streams.start(frame, topic="out")
        try:
            until(lambda: query.lastProgress is not None and query.lastProgress["batchId"] >= 0)
            local.create_topic("in-2").append([("b", "2")])
            first.add_partitions(2)
            first.append([("c", "3", None, (), 1), ("d", "4", None, (), 0)])
            until(lambda: len(values(out)) == 3)
        finally:
            query.stop()
        assert sorted(map(str, values(out))) == ["b'2'", "b'3'", "b'4'"]

    def test_it_waits_for_enough(self, local: Store, streams: Streams) -> None:
        source, out = local.create_topic("in"), local.create_topic("out")
        source.append([("a", "1")])
        frame = streams.source(subscribe="in", minOffsetsPerTrigger="3", maxTriggerDelay="1h")
        query = streams.start(frame, topic="out")
        try:
            until(lambda: len(values(out)) == 1)  # the first batch does not wait
            source.append([("b", "2"), ("c", "3")])
            time.sleep(1.5)
            assert len(values(out)) == 1
            source.append([("d", "4")])
            until(lambda: len(values(out)) == 4)
        finally:
            query.stop()

    def test_cleaning_in_between_is_no_loss(self, local: Store, streams: Streams) -> None:
        source, out = local.create_topic("in"), local.create_topic("out")
        write(source, "a=1 b=1 a=2")
        streams.drain(streams.source(subscribe="in"), topic="out")
        write(source, "b=2 a=3 a=4 c=∅")
        clean(source)
        streams.drain(streams.source(subscribe="in"), topic="out")
        assert shown(out) == "a=1 b=1 a=2 b=2 a=4 c=∅*"

    def test_retention_is(self, local: Store, streams: Streams) -> None:
        source = local.create_topic("in", config={"cleanup.policy": "compact,delete"})
        out = local.create_topic("out")
        write(source, "a=1")
        streams.drain(streams.source(subscribe="in"), topic="out")
        write(source, "b=1 c=1 d=1*")
        source.delete_records(0, 3)
        message = refused(lambda: streams.drain(streams.source(subscribe="in"), topic="out"))
        assert "DataLossError: in-0: offset 1 is below log start, which is 3 now" in message
        lenient = streams.source(subscribe="in", failOnDataLoss=False)
        streams.drain(lenient, topic="out")
        assert shown(out) == "a=1 d=1*"

    def test_a_topic_that_is_gone_or_made_anew(self, local: Store, streams: Streams) -> None:
        local.create_topic("out")
        for name in ("in-1", "in-2"):
            local.create_topic(name).append([("a", "1"), ("b", "1")])
        streams.drain(streams.source(subscribe="in-1,in-2"), topic="out")
        local.topic("in-2").delete()
        frame = streams.source(subscribe="in-1,in-2")
        message = refused(lambda: streams.drain(frame, topic="out"))
        assert "DataLossError: in-2-0: is gone" in message
        local.create_topic("in-2").append([("c", "1")])
        message = refused(lambda: streams.drain(frame, topic="out"))
        assert "in-2-0: offset 2 is beyond log end, which is 1: was the topic made anew?" in message
        lenient = streams.source(subscribe="in-1,in-2", failOnDataLoss=False)
        streams.drain(lenient, topic="out")
        local.topic("in-2").append([("d", "1")])
        streams.drain(lenient, topic="out")
        assert shown(local.topic("out")).endswith("d=1*")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"endingOffsets": "latest"}, "a stream has no end: leave endingOffsets out"),
            ({"view": "latest"}, "a stream reads the log: view=latest is for batch queries"),
            ({"startingOffsets": {"in": {"7": 1}}}, "must name every partition that is read"),
            ({"subscribe": "inn"}, "UnknownTopicError: no topic 'inn'; did you mean 'in'?"),
        ],
    )
    def test_refused(
        self, local: Store, streams: Streams, options: dict[str, Any], message: str
    ) -> None:
        for name in ("in", "out"):
            local.create_topic(name)
        frame = streams.source(**{"subscribe": "in", **options})
        assert message in refused(lambda: streams.drain(frame, topic="out"))


class TestSink:
    def test_complete_writes_the_whole_result_again(self, local: Store, streams: Streams) -> None:
        source, out = local.create_topic("in"), local.create_topic("out")
        counts = streams.source(subscribe="in").groupBy("key").count()
        table = counts.selectExpr("key", "string(count) AS value").coalesce(1)
        for text in ("a=1 a=2 b=1", "b=2"):
            write(source, text)
            streams.drain(table, mode="complete", topic="out")
        assert sorted(shown(out).removesuffix("*").split()) == ["a=2", "a=2", "b=1", "b=2"]

    def test_update_is_refused_by_spark(self, local: Store, streams: Streams) -> None:
        local.create_topic("in")
        frame = streams.source(subscribe="in")
        with pytest.raises(Exception, match="(?i)does not support update"):
            streams.drain(frame, mode="update", topic="out")

    def test_update_by_foreach_batch(self, local: Store, url: str, streams: Streams) -> None:
        """What the documentation offers instead: exactly once, by the number of the batch."""
        source, out = local.create_topic("in"), local.create_topic("out")
        counts = streams.source(subscribe="in").groupBy("key").count()

        def write_batch(frame: DataFrame, batch_id: int) -> None:
            for _ in range(2):  # as if the first had failed after its commit
                rows = frame.selectExpr("key", "string(count) AS value").coalesce(1)
                writer = rows.write.format("lastword").mode("append")
                given = {"writerId": "counts", "writerVersion": str(batch_id)}
                writer.options(store=url, topic="out", **given).save()

        for text in ("a=1 a=2 b=1", "b=2"):
            write(source, text)
            query = (
                counts.writeStream.outputMode("update")
                .option("checkpointLocation", str(streams.folder / "q"))
                .foreachBatch(write_batch)
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(300)
        assert sorted(shown(out).removesuffix("*").split()) == ["a=2", "b=1", "b=2"]

    def test_a_batch_that_is_run_again_is_written_once(
        self, local: Store, streams: Streams
    ) -> None:
        """Killed after the sink's commit, before Spark noted it."""
        source, out = local.create_topic("in", 2), local.create_topic("out", 2)
        source.append([(f"k{n}", str(n)) for n in range(20)])
        streams.drain(streams.source(subscribe="in"), topic="out")
        assert _forget_last_commit(streams.folder / "q")
        streams.drain(streams.source(subscribe="in"), topic="out")
        assert sorted(map(str, values(out))) == sorted(map(str, values(source)))
        with lastword.open(streams.url) as now:
            now.gc()
            assert now.check(orphan_age_ms=0).is_clean

    def test_two_topics_by_column(self, local: Store, streams: Streams) -> None:
        source = local.create_topic("in")
        for name in ("a", "b"):
            local.create_topic(name)
        write(source, "a=1 b=2 a=3")
        frame = streams.source(subscribe="in").withColumnRenamed("topic", "from")
        routed = frame.selectExpr("decode(key, 'UTF-8') AS topic", "key", "value")
        streams.drain(routed)
        assert _forget_last_commit(streams.folder / "q")
        streams.drain(routed)
        assert [shown(local.topic(n)) for n in "ab"] == ["a=1 a=3*", "b=2*"]


def _forget_last_commit(checkpoint: Path) -> bool:
    """Make Spark believe that it died before it noted its last batch as done."""
    commits = [p for p in (checkpoint / "commits").glob("*") if p.name.isdigit()]
    if not commits:
        return False
    last = max(commits, key=lambda p: int(p.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    return True


def test_kill_it_again_and_again(local: Store, streams: Streams) -> None:
    """Three queries, twice each, while a writer writes: Python workers, of tasks, plans and commits,
    are killed, queries stopped, and Spark's note of a batch taken away, at random. Nothing is lost,
    nothing doubled."""
    source = local.create_topic("in", 3)
    outs = [local.create_topic(f"out-{i}", 3) for i in range(3)]
    stop = threading.Event()

    def write_on() -> None:
        n = 0
        while not stop.wait(0.3):
            source.append([(f"k{i % 7}", str(n + i)) for i in range(50)])
            n += 50

    writer = threading.Thread(target=write_on)
    writer.start()
    random_ = random.Random(5)
    killed = forgotten = 0
    try:
        for _ in range(times(2)):
            frame = streams.source(subscribe="in")
            queries = [streams.start(frame, o.name, topic=o.name) for o in outs]
            until(lambda all_=queries: sum(bool(_batches(q)) for q in all_) > 1)  # type: ignore[misc]
            for query, out in zip(queries, outs, strict=True):
                if random_.random() < 0.6:
                    with suppress(ProcessLookupError, IndexError):
                        os.kill(random_.choice(_workers(os.getpid())), signal.SIGKILL)
                        killed += 1
                time.sleep(random_.random() * 0.4)
                with suppress(Exception):
                    query.stop()
                if random_.random() < 0.5:
                    forgotten += _forget_last_commit(streams.folder / out.name)
    finally:
        stop.set()
        writer.join()
    for out in outs:
        streams.drain(streams.source(subscribe="in"), out.name, topic=out.name)
        for p in range(3):
            written = [(r.key, r.value) for r in source.read(p)]
            assert [(r.key, r.value) for r in out.read(p)] == written
    assert (killed >= 2, forgotten >= 1) == (True, True), (killed, forgotten)


def _batches(query: StreamingQuery) -> list[Any]:
    """The batches that it has done; a query that has failed has done enough."""
    return list(query.recentProgress) if query.isActive else [None]


QUERY = textwrap.dedent(
    """
    import sys
    from lastword.jobs.session import found_or_started
    url, checkpoint = sys.argv[1:]
    spark = found_or_started("local[2]")
    frame = spark.readStream.format("lastword").options(
        store=url, subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger="40").load()
    query = frame.writeStream.format("lastword").options(
        store=url, topic="out", checkpointLocation=checkpoint).start()
    print("started", flush=True)
    query.awaitTermination()
    """
)


def test_kill_everything(postgres_url: str, tmp_path: Path, spark: SparkSession) -> None:
    """Driver, JVM and workers at once, in the middle of batches; here with the other catalog."""
    catalog_url = postgres_store_url(postgres_url, tmp_path / "data")
    with lastword.open(catalog_url) as store:
        source, out = store.create_topic("in", 2), store.create_topic("out", 2)
        source.append([(f"k{n % 9}", str(n)) for n in range(4_000)])
        query = subprocess.Popen(
            [sys.executable, "-c", QUERY, catalog_url, str(tmp_path / "q")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        until(lambda: len(values(out)) > 100)
        os.killpg(query.pid, signal.SIGKILL)
        query.wait()
        assert len(values(out)) < 4_000
        streams = Streams(spark, catalog_url, tmp_path)
        streams.drain(streams.source(subscribe="in"), topic="out")
        for p in range(2):
            assert [r.value for r in out.read(p)] == [r.value for r in source.read(p)]
        store.gc()
        assert store.check().is_clean


def test_a_stream_while_the_cleaner_never_rests(local: Store, streams: Streams) -> None:
    """It sees every last value, in order, once; what it misses was obsolete."""
    source = local.create_topic("in", 2, {"file.delete.delay.ms": 60_000})
    out = local.create_topic("out", config={"cleanup.policy": "delete"})
    stop = threading.Event()
    passes = 0

    def clean_on() -> None:
        nonlocal passes
        while not stop.is_set():
            passes += len(clean(source))

    def write_on() -> None:
        for n in range(150):
            source.append([(f"k{(n + i) % 11}", f"{n}.{i}") for i in range(8)])

    threads = [threading.Thread(target=t) for t in (clean_on, write_on)]
    for thread in threads:
        thread.start()
    seen = streams.source(subscribe="in", maxOffsetsPerTrigger="60").selectExpr(
        "key", "concat(string(partition), ':', string(offset), ':', value) AS value"
    )
    query = streams.start(seen, topic="out")
    try:
        threads[1].join()
        query.processAllAvailable()
    finally:
        stop.set()
        threads[0].join()
        query.stop()
    found = [str(r.value, "utf-8").split(":") for r in out.read()]  # type: ignore[arg-type]
    for p in range(2):
        offsets = [int(offset) for number, offset, _ in found if int(number) == p]
        assert offsets == sorted(set(offsets))
        assert {r.offset for r in source.read(p)} <= set(offsets)
    assert passes > 5
    assert sum(end for _, end in source.offsets().values()) == 1_200
