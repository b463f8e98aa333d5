"""Random logs, read by tasks and by streams in this process, against plain lists."""

from __future__ import annotations

import pickle
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable

from lastword.errors import DataLossError
from lastword.spark.options import Options
from lastword.spark.rows import schema_for
from lastword.spark.stream import StreamReader
from lastword.store import Store
from lastword.testing import ManualClock
from lastword.topic import Topic
from tests.conftest import new_store
from tests.notation import clean
from tests.soak import times
from tests.spark_door import Row, arrow_rows, in_log, read_here, texts

KEYS = st.sampled_from("abcde")
RECORD = st.tuples(KEYS, st.sampled_from([None, "x"]), st.integers(0, 1))
STEP = st.one_of(
    st.lists(RECORD, min_size=1, max_size=8),
    st.sampled_from(["roll", "clean", "clean", "drop", "wait"]),
)
LOG = st.lists(STEP, min_size=1, max_size=14)


@contextmanager
def a_store(steps: list[Any] | None = None) -> Iterator[tuple[Store, Topic, ManualClock]]:
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as folder, new_store(f"{folder}/s", clock) as store:
        config = {"cleanup.policy": "compact,delete", "delete.retention.ms": 1_000}
        topic = store.create_topic("t", 2, config)
        for step in steps or []:
            do(step, topic, clock)
        yield store, topic, clock


def do(step: Any, topic: Topic, clock: ManualClock) -> None:
    match step:
        case "roll":
            topic.roll()
        case "clean":
            for done in clean(topic):
                assert done.error is None
        case "drop":
            for p, (first, end) in topic.offsets().items():
                topic.delete_records(p, (first + end) // 2)
        case "wait":
            clock.advance(700)
        case records:
            topic.append([(key, value, None, (), p) for key, value, p in records])


def latest(found: list[Row]) -> list[Row]:
    """The last word on each key, in thirty plain words."""
    last = {(row[1], row[3]): row for row in sorted(found)}
    return sorted(row for row in last.values() if row[4] is not None)


@settings(max_examples=times(30))
@given(LOG, st.data())
def test_any_part_of_any_log(steps: list[Any], data: st.DataObject) -> None:
    with a_store(steps) as (store, topic, _):
        everything = in_log(store, "t")
        bounds = topic.offsets()
        start, end = {}, {}
        for p, (first, last) in bounds.items():
            start[str(p)] = data.draw(st.integers(first, last))
            end[str(p)] = data.draw(st.integers(start[str(p)], last))
        options: dict[str, Any] = {"startingOffsets": {"t": start}, "endingOffsets": {"t": end}}
        if most := data.draw(st.one_of(st.none(), st.integers(1, 9))):
            options["maxRecordsPerPartition"] = most
        if fewest := data.draw(st.one_of(st.none(), st.integers(1, 9))):
            options["minPartitions"] = fewest
        wanted = [r for r in everything if start[str(r[1])] <= r[2] < end[str(r[1])]]
        assert read_here(store, subscribe="t", **options) == wanted


@settings(max_examples=times(30))
@given(LOG, st.one_of(st.none(), st.integers(1, 5)), st.sampled_from([1_048_577, 128 << 20]))
def test_latest_is_exact_whatever_was_cleaned(
    steps: list[Any], fewest: int | None, map_bytes: int
) -> None:
    with a_store(steps) as (store, _, _clock):
        store.alter({"log.cleaner.dedupe.buffer.size": map_bytes})
        options = {"minPartitions": fewest} if fewest else {}
        found = read_here(store, subscribe="t", view="latest", **options)
        assert sorted(found) == latest(in_log(store, "t"))


class Follower:
    """A streaming query without Spark: it keeps a checkpoint, and may die at any moment."""

    def __init__(self, store: Store, **options: Any) -> None:
        self._options = texts({"subscribe": "t", "store": "x", **options})
        self._store = store
        self.seen: list[Row] = []
        self.done: dict[str, Any] | None = None  # the last batch that was committed
        self.planned: dict[str, Any] | None = None  # one that was planned, and not yet done
        self.restart()

    def restart(self) -> None:
        self._reader = StreamReader(self._options, schema_for(Options({})))
        self._reader.__dict__["_base"] = self._store.base

    def plan(self) -> bool:
        """Plan a batch, as Spark does before it runs it; False if there is nothing new."""
        if self.planned is None:
            start = self.start()
            end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
            self.planned = end if end != start else None
        return self.planned is not None

    def start(self) -> dict[str, Any]:
        return self._reader.initialOffset() if self.done is None else self.done

    def run(self) -> list[Row]:
        """Run the planned batch, and commit it."""
        assert self.planned is not None
        schema = self._reader._schema
        tasks = self._reader.partitions(self.start(), self.planned)
        task_reader = pickle.loads(pickle.dumps(self._reader))
        shipped = [pickle.loads(pickle.dumps(task)) for task in tasks]
        batches = [batch for task in shipped for batch in task_reader.read(task)]
        found = arrow_rows(batches, schema)
        self.seen += found
        self.done, self.planned = self.planned, None
        return found


LIVE = st.lists(
    st.one_of(
        st.lists(RECORD, min_size=1, max_size=8),
        st.sampled_from(["roll", "clean", "wait", "plan", "run", "run", "crash"]),
    ),
    max_size=25,
)


@settings(max_examples=times(30))
@given(LOG, LIVE, st.one_of(st.none(), st.integers(1, 6)), st.sampled_from(["earliest", "latest"]))
def test_a_stream_sees_every_last_word_in_order_once(
    before: list[Any], live: list[Any], most: int | None, where: str
) -> None:
    """Whatever is appended, cleaned, planned, run and killed in between."""
    options: dict[str, Any] = {"startingOffsets": where}
    if most:
        options["maxOffsetsPerTrigger"] = most
    with a_store([s for s in before if s != "drop"]) as (store, topic, clock):
        log_ends = {p: end for p, (_, end) in topic.offsets().items()}
        query = Follower(store, **options)
        query.plan()  # latest is what it is when the query starts
        for step in live:
            if step == "crash":
                query.restart()
            elif step in ("plan", "run"):
                if query.plan() and step == "run":
                    found = query.run()
                    assert most is None or len(found) <= max(most, 2)
            else:
                do(step, topic, clock)
        while query.plan():
            query.run()
        by_partition = defaultdict(list)
        for row in query.seen:
            by_partition[row[1]].append(row[2])
        for offsets in by_partition.values():
            assert offsets == sorted(set(offsets))
        begin = {p: 0 if where == "earliest" else log_ends[p] for p in log_ends}
        due = [row for row in in_log(store, "t") if row[2] >= begin[row[1]]]
        assert set(due) <= set(query.seen)
        if where == "latest":
            assert all(row[2] >= begin[row[1]] for row in query.seen)


@settings(max_examples=times(25))
@given(LOG, st.integers(1, 9))
def test_portions_are_counted_in_live_records(steps: list[Any], most: int) -> None:
    """Full portions, as far as that can be shared, though most offsets may be gone."""
    with a_store(steps) as (store, topic, _):
        bounds = topic.offsets()
        start = {"t": {str(p): first for p, (first, _) in bounds.items()}}
        query = Follower(store, startingOffsets=start, maxOffsetsPerTrigger=most)
        total = len(in_log(store, "t"))
        batches = 0
        while query.plan():
            assert len(query.run()) <= max(most, 2)
            batches += 1
        assert len(query.seen) == total
        assert batches <= total + 2
        assert query._reader.latestOffset(query.start(), ReadAllAvailable()) == query.start()


def test_what_retention_drops_between_plan_and_run_is_a_loss() -> None:
    with a_store([[("a", "x", 0)] * 6]) as (store, topic, _):
        query = Follower(store, startingOffsets="earliest")
        assert query.plan()
        query.done = {"t": {"0": 0, "1": 0}}  # it had begun before
        topic.delete_records(0, 3)
        with pytest.raises(DataLossError, match="t-0: offset 0 is below log start, which is 3"):
            query.run()


def test_a_topic_made_anew_is_a_loss_however_much_it_grows() -> None:
    """The offsets of a batch that cannot be are not even planned."""
    with a_store([[("a", "x", 0)] * 6]) as (store, topic, _):
        query = Follower(store, startingOffsets="earliest")
        query.plan()
        query.run()
        topic.delete()
        again = store.create_topic("t", 2)
        again.append([("a", "x", None, (), 0)])
        with pytest.raises(DataLossError, match="offset 6 is beyond log end, which is 1"):
            query.plan()
        query.planned = {"t": {"0": 1, "1": 0}}  # as a Spark that had noted it
        again.append([("a", "x", None, (), 0)] * 9)
        with pytest.raises(DataLossError, match="offset 6 is beyond 1, where this batch ends"):
            query.run()


def test_a_batch_in_the_middle_of_a_file_is_shared_among_tasks() -> None:
    with a_store([[("a", "x", 0)] * 100]) as (store, _, _clock):
        query = Follower(store, startingOffsets="earliest", minPartitions=4)
        tasks = query._reader.partitions({"t": {"0": 80, "1": 0}}, {"t": {"0": 100, "1": 0}})
        assert [sum(p.records for p in task.pieces) for task in tasks] == [5] * 4  # type: ignore[attr-defined]


def test_a_log_start_that_moves_between_two_looks_is_a_loss() -> None:
    with a_store([[("a", "x", 0)] * 6]) as (store, topic, _):
        query = Follower(store, startingOffsets="earliest")
        looked = query._reader._found({})["t", 0]
        topic.delete_records(0, 3)
        with pytest.raises(DataLossError, match="offset 0 is below log start, which is 3"):
            query._reader._span(looked, 0, 6)


def test_a_stream_that_starts_at_latest_does_not_start_later_after_a_crash() -> None:
    with a_store([[("a", "old", 0)] * 6]) as (store, topic, clock):
        query = Follower(store, startingOffsets="latest")
        assert query.plan()
        do([("a", "new", 0)], topic, clock)
        query.restart()
        assert query.run() == []
        assert query.plan()
        assert [row[2] for row in query.run()] == [6]
