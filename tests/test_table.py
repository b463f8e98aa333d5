"""Tables: restored from a topic, following it, written through; and never a missed deletion."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lastword
from lastword import snapshot as snapshots
from lastword.errors import (
    InvalidArgumentError,
    InvalidRecordError,
    StorageError,
    UnknownTopicError,
)
from lastword.snapshot import SnapshotState
from lastword.store import Store
from lastword.table import Change, Table
from lastword.testing import InProcess, ManualClock
from lastword.topic import Topic
from tests.notation import clean, write
from tests.soak import times


@pytest.fixture(params=["memory", "snapshot"])
def snapshot(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "table.db" if request.param == "snapshot" else None


class TestTable:
    def test_a_mapping(self, store: Store, snapshot: Path | None) -> None:
        topic = store.create_topic("t", 3)
        topic.append([("1001", "Paper Road 21"), ("1003", "Milkman Road")])
        with topic.table(snapshot=snapshot) as table:
            table["1004"] = "1 Loop Rd"
            del table["1003"]
            assert dict(table) == {b"1001": b"Paper Road 21", b"1004": b"1 Loop Rd"}
            assert table["1004"] == table[b"1004"] == b"1 Loop Rd"
            assert b"1003" not in table
            assert len(table) == 2
            assert table.get(b"1003") is None
            assert table.pop(b"1004") == b"1 Loop Rd"
            assert table.setdefault(b"1005", b"x") == b"x"
            assert topic.latest().to_dict() == dict(table)
        assert [r.value for r in topic.history("1004")] == [None, b"1 Loop Rd"]

    def test_what_is_refused_changes_nothing(self, local: Store) -> None:
        topic = local.create_topic("t")
        with topic.table() as table:
            table["a"] = "1"
            for key in ("b", b"b"):
                with pytest.raises(KeyError):
                    table[key]
                with pytest.raises(KeyError):
                    del table[key]
            with pytest.raises(InvalidArgumentError, match="use del"):
                table["a"] = None  # type: ignore[assignment]
            with pytest.raises(InvalidArgumentError, match="a key is bytes or text"):
                table[5]  # type: ignore[index]
            with pytest.raises(InvalidRecordError):
                table.update({"b": "2", "c": 5})
            assert dict(table) == {b"a": b"1"}
        assert topic.offsets() == {0: (0, 1)}

    def test_many_at_once_are_one_append(self, local: Store) -> None:
        topic = local.create_topic("t", 2)
        with topic.table() as table:
            table.update({str(i): "x" for i in range(100)}, other="y")
            assert len(table) == 101
            table.clear()
            assert len(table) == 0
        with local.base.catalog.read() as tx:
            kinds = tx.exec_driver_sql('SELECT kind FROM "commit" ORDER BY id').scalars().all()
        assert kinds == ["create", "append", "append"]

    def test_it_follows_the_topic(self, local: Store, snapshot: Path | None) -> None:
        topic = local.create_topic("t", 2)
        told: list[Change] = []
        topic.append([("a", "0")])
        with topic.table(snapshot=snapshot, on_change=told.append) as table:
            assert told == []
            topic.append([("a", "1"), ("b", "1"), ("a", "2")])
            assert b"b" not in table
            table["c"] = "3"
            assert b"c" in table  # at once, whatever others have written in between
            table.refresh()
            assert dict(table) == {b"a": b"2", b"b": b"1", b"c": b"3"}
            topic.append([("b", None)])
            table.refresh()
            table["c"] = "3"
        assert sorted(told, key=lambda c: c.key) == [
            Change(b"a", b"0", b"2"),
            Change(b"b", None, b"1"),
            Change(b"b", b"1", None),
            Change(b"c", None, b"3"),
        ]

    def test_a_thread_refreshes_it(self, local: Store) -> None:
        topic = local.create_topic("t")
        seen = threading.Event()
        with topic.table(refresh_ms=5, on_change=lambda change: seen.set()) as table:
            topic.append([("a", "1")])
            assert seen.wait(150)
            assert table["a"] == b"1"

    def test_a_thread_outlives_errors(self, local: Store, caplog: pytest.LogCaptureFixture) -> None:
        topic = local.create_topic("t")
        calls = []
        seen = threading.Event()

        def fail_once(change: Change) -> None:
            calls.append(change)
            if len(calls) == 1:
                raise RuntimeError("the caller's own")
            seen.set()

        with topic.table(refresh_ms=5, on_change=fail_once):
            topic.append([("a", "1")])
            while not calls:
                seen.wait(0.01)
            topic.append([("a", "2")])
            assert seen.wait(150)
        assert "a callback of the table of t failed" in caplog.text

    def test_a_callback_that_fails_does_not_keep_the_others_from_being_told(
        self, local: Store, snapshot: Path | None
    ) -> None:
        topic = local.create_topic("t")
        told: list[bytes] = []

        def tell(change: Change) -> None:
            told.append(change.key)
            if change.key == b"a":
                raise RuntimeError("the caller's own")

        with topic.table(snapshot=snapshot, on_change=tell) as table:
            topic.append([("a", "1"), ("b", "1"), ("c", "1")])
            with pytest.raises(RuntimeError, match="the caller's own"):
                table.refresh()
            assert told == [b"a", b"b", b"c"]
            assert len(table) == 3

    def test_a_callback_may_close_it(self, local: Store) -> None:
        topic = local.create_topic("t")
        closed = threading.Event()

        def close(_: Change) -> None:
            table.close()
            closed.set()

        table = topic.table(refresh_ms=5, on_change=close)
        topic.append([("a", "1")])
        assert closed.wait(150)

    def test_one_moment_of_it(self, local: Store, snapshot: Path | None) -> None:
        """While another thread deletes and sets, all of it is seen or nothing."""
        topic = local.create_topic("t")
        keys = [f"k{i}" for i in range(20)]
        with topic.table(snapshot=snapshot) as table:
            table.update(dict.fromkeys(keys, "x"))
            stop = threading.Event()

            def work() -> None:
                while not stop.is_set():
                    table.clear()
                    table.update(dict.fromkeys(keys, "x"))

            thread = threading.Thread(target=work)
            thread.start()
            for _ in range(200):
                assert len(table.to_dict()) in (0, 20)
                assert len(list(table.items())) in (0, 20)
                assert len(list(table.values())) in (0, 20)
            stop.set()
            thread.join()

    def test_a_closed_table_refuses(self, local: Store, snapshot: Path | None) -> None:
        topic = local.create_topic("t")
        table = topic.table(snapshot=snapshot)
        table.close()
        with pytest.raises(InvalidArgumentError, match="is closed"):
            table["a"] = "1"
        for use in (table.refresh, table.to_dict, lambda: list(table), lambda: table["a"]):
            with pytest.raises(InvalidArgumentError, match="is closed"):
                use()
        assert repr(table) == "Table('t', closed)"
        assert topic.offsets() == {0: (0, 0)}
        with pytest.raises(InvalidArgumentError, match="1 or more"):
            topic.table(refresh_ms=0)
        with pytest.raises(InvalidArgumentError, match="on_change is a function"):
            topic.table(on_change=5)  # type: ignore[arg-type]

    def test_many_threads_write(self, local: Store) -> None:
        topic = local.create_topic("t", 2)
        with topic.table() as one, topic.table() as other:

            def work(table: Table, name: str) -> None:
                for i in range(10):
                    table[f"{name}-{i % 3}"] = str(i)

            threads = [
                threading.Thread(target=work, args=(table, f"{n}"))
                for n, table in enumerate([one, one, other, other])
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            one.refresh()
            other.refresh()
            assert dict(one) == dict(other) == topic.latest().to_dict()
            assert len(one) == 12

    def test_a_topic_that_is_gone(self, local: Store) -> None:
        topic = local.create_topic("t")
        with topic.table() as table:
            topic.delete()
            with pytest.raises(UnknownTopicError):
                table.refresh()
            with pytest.raises(UnknownTopicError):
                table["a"] = "1"


class TestMissedDeletions:
    def test_a_table_that_was_away_too_long(
        self, store: Store, clock: ManualClock, snapshot: Path | None
    ) -> None:
        topic = store.create_topic("t", config={"delete.retention.ms": 10})
        write(topic, "a=1 b=1 c=1*")
        told: list[Change] = []
        with topic.table(snapshot=snapshot, on_change=told.append) as table:
            write(topic, "a=∅ b=2")
            clean(topic)
            clock.advance(10)
            clean(topic)
            assert [r.key for r in topic.read(0)] == [b"c", b"b"]  # no trace of the deletion
            table.refresh()
            assert dict(table) == {b"b": b"2", b"c": b"1"}
        assert sorted(told, key=lambda c: c.key) == [
            Change(b"a", b"1", None),
            Change(b"b", b"1", b"2"),
        ]

    def test_a_snapshot_that_is_too_old(
        self, local: Store, clock: ManualClock, tmp_path: Path
    ) -> None:
        topic = local.create_topic("t", config={"delete.retention.ms": 10})
        write(topic, "a=1 b=1*")
        with topic.table(snapshot=tmp_path / "table.db"):
            pass
        write(topic, "a=∅ c=1")
        clean(topic)
        clock.advance(10)
        clean(topic)
        with topic.table(snapshot=tmp_path / "table.db") as table:
            assert dict(table) == {b"b": b"1", b"c": b"1"}

    def test_what_retention_drops_is_dropped(
        self, local: Store, clock: ManualClock, snapshot: Path | None
    ) -> None:
        config = {"cleanup.policy": "compact,delete", "retention.ms": 1000}
        topic = local.create_topic("t", config=config)
        write(topic, "a=1 b=1 |")
        with topic.table(snapshot=snapshot) as table:
            clock.advance(1001)
            write(topic, "b=2*")
            local.expire("t")
            table.refresh()
            assert dict(table) == topic.latest().to_dict() == {b"b": b"2"}


class TestSnapshot:
    def test_a_restart_reads_only_what_is_new(self, local: Store, tmp_path: Path) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 b=1 | c=1*")
        path = tmp_path / "table.db"
        with topic.table(snapshot=path) as table:
            assert table.position == {0: 3}
        write(topic, "a=2 b=∅*")
        read: list[int] = []
        with topic.table(snapshot=path, progress=read.append) as table:
            assert dict(table) == {b"a": b"2", b"c": b"1"}
            table["d"] = "1"
        newest = topic.describe().partitions[0].segments[-1].bytes
        assert 0 < sum(read) < newest
        read.clear()
        with topic.table(snapshot=path, progress=read.append) as table:
            assert dict(table) == {b"a": b"2", b"c": b"1", b"d": b"1"}
        assert read == []  # it has all of it already

    def test_one_at_a_time(self, local: Store, tmp_path: Path) -> None:
        topic = local.create_topic("t")
        with (
            topic.table(snapshot=tmp_path / "table.db"),
            pytest.raises(StorageError, match="another table uses this snapshot"),
        ):
            topic.table(snapshot=tmp_path / "table.db")
        topic.table(snapshot=tmp_path / "table.db").close()

    def test_of_another_topic(self, local: Store, tmp_path: Path) -> None:
        """Or of one that was made anew under its name: it is made anew, too."""
        path = tmp_path / "table.db"
        for turn in range(3):
            topic = local.create_topic("t")
            topic.append([(f"k{i}", str(turn)) for i in range(5 - turn)])
            with topic.table(snapshot=path) as table:
                assert dict(table) == {b"k%d" % i: b"%d" % turn for i in range(5 - turn)}
            topic.delete()

    def test_what_is_no_snapshot_is_left_alone(self, local: Store, tmp_path: Path) -> None:
        topic = local.create_topic("t")
        text, other = tmp_path / "text", tmp_path / "other.db"
        text.write_text("hello, I am no database" * 100)
        with sqlite3.connect(other) as db:
            db.execute("CREATE TABLE mine (x)")
        for path in (text, other):
            before = path.read_bytes()
            with pytest.raises(StorageError, match="snapshot"):
                topic.table(snapshot=path)
            assert path.read_bytes() == before
            assert not path.with_name(f"{path.name}.lock").exists() or path == other
        for where, problem in (("no/such/folder", "does not exist"), ("", "is a folder")):
            with pytest.raises(StorageError, match=problem):
                topic.table(snapshot=tmp_path / where)
        local.create_topic("u").table(snapshot=tmp_path / "u.db").close()
        with pytest.raises(StorageError, match="is a snapshot of topic 'u'"):
            topic.table(snapshot=tmp_path / "u.db")

    def test_an_error_lets_go_of_the_lock(self, local: Store, tmp_path: Path) -> None:
        topic, path = local.create_topic("t"), tmp_path / "table.db"
        path.write_text("hello, I am no database" * 100)
        try:
            topic.table(snapshot=path)
        except StorageError:
            path.unlink()  # as it says
            topic.table(snapshot=path).close()

    def test_killed_while_it_is_made(
        self, local: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic, path = local.create_topic("t"), tmp_path / "table.db"
        write(topic, "a=1*")

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(SnapshotState, "_finish", die)
            with pytest.raises(KeyboardInterrupt):
                topic.table(snapshot=path)
        assert path.exists()
        with topic.table(snapshot=path) as table:
            table["b"] = "1"
            table.close()
            table.close()  # once more does no harm
        with topic.table(snapshot=path) as table:
            assert dict(table) == {b"a": b"1", b"b": b"1"}

    def test_an_empty_file_is_none(self, local: Store, tmp_path: Path) -> None:
        (tmp_path / "table.db").touch()
        topic = local.create_topic("t")
        write(topic, "a=1*")
        with topic.table(snapshot=tmp_path / "table.db") as table:
            assert dict(table) == {b"a": b"1"}

    @pytest.mark.parametrize("step", ["remove", "replace", "_finish", "_store_positions"])
    def test_a_crash_while_it_is_restored(
        self, local: Store, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever step it does not survive, the next one opens it and is right."""
        topic, path = local.create_topic("t"), tmp_path / "table.db"
        write(topic, "a=1 b=1*")
        with topic.table(snapshot=path) as table:
            write(topic, "a=2*")
            table._state.positions = {}  # so that it is restored as a whole

            def die(*_: object) -> None:
                raise KeyboardInterrupt

            where = {"_finish": SnapshotState, "_store_positions": snapshots}.get(step, os)
            with monkeypatch.context() as patch:
                patch.setattr(where, step, die)
                with pytest.raises(KeyboardInterrupt):
                    table.refresh()
        with topic.table(snapshot=path) as table:
            assert dict(table) == {b"a": b"2", b"b": b"1"}

    def test_killed_while_it_writes(self, tmp_path: Path) -> None:
        """The snapshot is what the topic was at its positions, whenever its process dies."""
        url, path = str(tmp_path / "store"), str(tmp_path / "table.db")
        with lastword.open(url) as store:
            topic = store.create_topic("t", 2)
            for turn in range(4):
                child = subprocess.Popen(
                    [sys.executable, "-c", _WRITE_FOR_EVER, url, path], stdout=subprocess.PIPE
                )
                assert child.stdout is not None
                for _ in range(3 + 5 * turn):
                    child.stdout.readline()
                os.kill(child.pid, signal.SIGKILL)
                child.wait()
                child.stdout.close()
                with topic.table(snapshot=path) as table:
                    assert dict(table) == topic.latest().to_dict()
                    assert table.position == {n: end for n, (_, end) in topic.offsets().items()}


_WRITE_FOR_EVER = """
import itertools, sys, lastword
table = lastword.open(sys.argv[1]).topic("t").table(snapshot=sys.argv[2])
for i in itertools.count():
    if i % 3 == 2 and f"{(i - 1) % 7}" in table:
        del table[f"{(i - 1) % 7}"]
    else:
        table[f"{i % 7}"] = str(i)
    print(i, flush=True)
"""


words = st.lists(
    st.tuples(st.sampled_from("abcde"), st.sampled_from(["1", "2", None])), min_size=1, max_size=5
)
moves = st.one_of(
    words, st.sampled_from(["roll", "clean", "wait", "gc", "refresh", "reopen", "write", "delete"])
)


@given(st.lists(moves, max_size=20), st.booleans())
@settings(max_examples=times(40))
def test_any_history(history: list[object], is_kept: bool) -> None:
    """After a refresh a table is what latest says, whatever has happened since the last one."""
    clock = ManualClock()
    with (
        tempfile.TemporaryDirectory() as folder,
        lastword.open(folder + "/s", clock=clock) as store,
    ):
        config = {
            "cleanup.policy": "compact,delete",
            "retention.ms": 200,
            "delete.retention.ms": 30,
            "file.delete.delay.ms": 30,
            "min.cleanable.dirty.ratio": 0,
        }
        topic = store.create_topic("t", 2, config)
        path = f"{folder}/table.db" if is_kept else None
        table, told = _opened(topic, path)
        for step in history:
            clock.advance(10)
            if isinstance(step, list):
                topic.append(step)
            elif step == "roll":
                topic.roll()
            elif step == "clean":
                store.clean(runner=InProcess())
            elif step == "wait":
                clock.advance(50)
            elif step == "gc":
                store.expire()
                store.gc()
            elif step == "reopen":
                table.close()
                table, told = _opened(topic, path)
            elif step == "write":
                table["a"] = "w"
                assert table["a"] == b"w"
            elif step == "delete" and b"b" in table:
                del table["b"]
                assert b"b" not in table
            elif step == "refresh":
                table.refresh()
                assert dict(table) == topic.latest().to_dict()
            assert told == dict(table)
        table.close()


def _opened(topic: Topic, path: str | None) -> tuple[Table, dict[bytes, bytes]]:
    """A table, and the same as its callbacks tell it."""
    told: dict[bytes, bytes] = {}

    def tell(change: Change) -> None:
        assert told.get(change.key) == change.old
        if change.new is None:
            del told[change.key]
        else:
            told[change.key] = change.new

    table = topic.table(snapshot=path, on_change=tell)
    assert dict(table) == topic.latest().to_dict()
    told.update(table)
    return table, told
