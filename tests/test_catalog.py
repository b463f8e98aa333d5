"""The catalog's behaviour, on SQLite and on Postgres."""

from __future__ import annotations

import socket
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text, update

import lastword
from lastword.catalog import cleaning, commits, queries, retired, schema, writers
from lastword.catalog.commits import NewLogStart
from lastword.errors import (
    CatalogError,
    CatalogVersionError,
    ConflictError,
    InvalidArgumentError,
    InvalidConfigError,
    InvalidRecordError,
    InvalidTopicError,
    NotAStoreError,
    StaleWriterError,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
)
from lastword.log import append as log_append
from lastword.model import Record, StagedFile, Writer
from lastword.store import Store
from lastword.testing import InProcess, ManualClock
from lastword.topic import Topic
from tests.conftest import postgres_store_url
from tests.notation import live_paths, shown, write


class TestTopics:
    def test_create_list_delete(self, store: Store) -> None:
        store.create_topic("b", partitions=3)
        store.create_topic("a")
        assert store.topics() == ["a", "b"]
        assert store.topic("b").partitions == 3
        assert store.topic("b").offsets() == {0: (0, 0), 1: (0, 0), 2: (0, 0)}
        store.topic("b").delete()
        assert store.topics() == ["a"]

    def test_a_name_can_be_had_once(self, store: Store) -> None:
        store.create_topic("t")
        with pytest.raises(TopicExistsError, match="topic 't' exists already"):
            store.create_topic("t")

    def test_an_unknown_topic_names_the_nearest(self, store: Store) -> None:
        store.create_topic("users")
        with pytest.raises(UnknownTopicError, match="no topic 'user'; did you mean 'users'"):
            store.topic("user")
        with pytest.raises(UnknownTopicError, match="no topic 'zzz'$"):
            store.topic("zzz")

    def test_an_unknown_partition(self, store: Store) -> None:
        topic = store.create_topic("t", partitions=2)
        with pytest.raises(UnknownTopicError, match="topic 't' has no partition 2"):
            topic.read(2)
        with pytest.raises(UnknownTopicError, match="topic 't' has no partition 9"):
            topic.roll(9)

    def test_nothing_is_made_of_a_bad_topic(self, store: Store) -> None:
        for name, partitions, config in (("a b", 1, {}), ("a", 0, {}), ("a", 1, {"x": 1})):
            with pytest.raises((InvalidTopicError, InvalidConfigError)):
                store.create_topic(name, partitions, config)
        assert store.topics() == []

    def test_partitions_only_grow(self, store: Store) -> None:
        topic = store.create_topic("t", partitions=2)
        write(topic, "a=1*", partition=1)
        topic.add_partitions(4)
        assert topic.offsets() == {0: (0, 0), 1: (0, 1), 2: (0, 0), 3: (0, 0)}
        with pytest.raises(InvalidTopicError, match=r"has 4 partition\(s\); .* not to 4"):
            topic.add_partitions(4)

    def test_a_deleted_topics_handle_is_stale_even_if_the_name_is_back(self, store: Store) -> None:
        old = store.create_topic("t")
        write(old, "a=1*")
        reader = old.read(0)
        old.delete()
        new = store.create_topic("t")
        for use in (
            lambda: old.append([("a", "1")]),
            lambda: old.read(0),
            lambda: list(reader),
            lambda: old.alter({"segment.ms": 1}),
            old.delete,
            old.roll,
            old.describe,
            old.offsets,
            lambda: old.add_partitions(3),
        ):
            with pytest.raises(UnknownTopicError):
                use()
        assert new.offsets() == {0: (0, 0)}

    def test_every_change_leaves_a_commit(self, store: Store, clock: ManualClock) -> None:
        topic = store.create_topic("t", config={"cleanup.policy": "delete"})
        topic.append([("a", "1")])
        topic.roll()
        topic.alter({"segment.ms": 5})
        topic.delete_records(0, 1)
        topic.delete()
        with store.base.catalog.read() as tx:
            rows = tx.execute(select(schema.commit).order_by(schema.commit.c.id)).all()
        kinds = ["create", "append", "roll", "config", "expire", "delete"]
        assert [(r.kind, r.topic, r.created_ms) for r in rows] == [(k, "t", clock()) for k in kinds]
        assert rows[3].detail == "segment.ms=5"
        assert all(":" in r.by for r in rows)


class TestSettings:
    def test_set_and_remove(self, store: Store) -> None:
        topic = store.create_topic("t", config={"segment.ms": "10", "cleanup.policy": "Delete"})
        topic.alter({"segment.bytes": "1048576", "segment.ms": 20, "retention.ms": "-1"})
        assert _overridden(topic) == {
            "cleanup.policy": "delete",
            "segment.bytes": "1048576",
            "segment.ms": "20",
            "retention.ms": "-1",
        }
        topic.alter({"segment.ms": None, "retention.ms": None, "segment.jitter.ms": None})
        assert _overridden(topic) == {"cleanup.policy": "delete", "segment.bytes": "1048576"}
        assert topic.config.segment_ms == 604_800_000

    def test_a_bad_change_changes_nothing(self, store: Store) -> None:
        topic = store.create_topic("t", config={"max.compaction.lag.ms": 100})
        for changes in (
            {"segment.ms": 5, "retention.ms": "x"},
            {"segment.ms": 5, "min.compaction.lag.ms": 200},
            {"segment.ms": 5, "segmnt.ms": None},
        ):
            with pytest.raises(InvalidConfigError):
                topic.alter(changes)
        assert _overridden(topic) == {"max.compaction.lag.ms": "100"}

    def test_the_stores_settings_are_defaults_of_its_topics(self, store: Store) -> None:
        topic = store.create_topic("t")
        store.alter({"log.retention.ms": 7, "log.cleaner.backoff.ms": "9"})
        assert topic.config.retention_ms == 7
        found = {s.key: s.value for s in store.settings() if s.is_overridden}
        assert found == {"log.retention.ms": "7", "log.cleaner.backoff.ms": "9"}
        topic.alter({"retention.ms": 8})
        assert topic.config.retention_ms == 8
        store.alter({"log.retention.ms": None})
        topic.alter({"retention.ms": None})
        assert topic.config.retention_ms == 604_800_000

    def test_a_store_setting_that_would_break_a_topic_is_refused(self, store: Store) -> None:
        topic = store.create_topic("t", config={"min.compaction.lag.ms": 200})
        with pytest.raises(InvalidConfigError, match=r"min.compaction.lag.ms \(200\) must not"):
            store.alter({"log.cleaner.max.compaction.lag.ms": 100})
        assert topic.config.max_compaction_lag_ms > 200
        assert not [s for s in store.settings() if s.is_overridden]


def _overridden(topic: Topic) -> dict[str, str]:
    return {s.key: s.value for s in topic.describe().settings if s.is_overridden}


class TestRolling:
    def test_by_size(self, store: Store) -> None:
        topic = store.create_topic(
            "t", config={"segment.bytes": 1 << 20, "compression.type": "uncompressed"}
        )
        for _ in range(5):
            topic.append([("k", "x" * 400_000)])
        segments = topic.describe().partitions[0].segments
        assert [(s.base, s.files, s.is_active) for s in segments] == [
            (0, 2, False),
            (2, 2, False),
            (4, 1, True),
        ]
        assert all(s.bytes <= 1 << 20 for s in segments)

    def test_an_append_larger_than_a_segment_is_split(self, store: Store) -> None:
        topic = store.create_topic(
            "t", config={"segment.bytes": 1 << 20, "compression.type": "uncompressed"}
        )
        topic.append([(f"k{i}", "x" * 100_000) for i in range(25)])
        segments = topic.describe().partitions[0].segments
        assert len(segments) == 3
        assert [r.key for r in topic.read(0)] == [b"k%d" % i for i in range(25)]

    def test_by_time_of_the_records(self, store: Store, clock: ManualClock) -> None:
        topic = store.create_topic("t", config={"segment.ms": 1000})
        topic.append([("a", "1")])
        clock.advance(1000)
        topic.append([("b", "2")])
        clock.advance(1)
        topic.append([("c", "3")])
        assert shown(topic) == "a=1 b=2 | c=3*"

    def test_the_wall_clock_alone_does_not_roll(self, store: Store, clock: ManualClock) -> None:
        topic = store.create_topic("t", config={"segment.ms": 1000})
        topic.append([("a", "1", 5)])
        clock.advance(5000)
        topic.append([("b", "2", 5)])
        assert shown(topic) == "a=1 b=2*"


class TestExactlyOnce:
    def test_a_repeat_is_a_no_op_with_the_first_result(self, store: Store) -> None:
        topic = store.create_topic("t", partitions=3)
        records = [("a", "1"), ("b", "2"), ("c", "3")]
        first = topic.append(records, writer=("app", 0))
        topic.append([("z", "9")])
        again = topic.append(records, writer=("app", 0))
        assert again.ranges == first.ranges
        assert (first.is_repeat, again.is_repeat) == (False, True)
        assert sum(1 for _ in topic.read()) == 4
        assert not topic.append(records, writer=("app", 1)).is_repeat
        assert not topic.append(records, writer=("other", 0)).is_repeat

    def test_an_older_version_is_refused(self, store: Store) -> None:
        topic = store.create_topic("t")
        topic.append([("a", "1")], writer=("app", 7))
        with pytest.raises(StaleWriterError, match="appended version 7 already, so version 6"):
            topic.append([("a", "1")], writer=("app", 6))
        assert topic.offsets() == {0: (0, 1)}

    @pytest.mark.parametrize("writer", [("app", -1), ("app", 2**63), ("app", "1"), ("", 1), "app"])
    def test_what_is_no_writer(self, local: Store, writer: Any) -> None:
        with pytest.raises(InvalidArgumentError, match=r"a writer is \(id, version\)"):
            local.create_topic("t").append([("a", "1")], writer=writer)

    def test_a_repeat_is_one_whatever_the_topic_takes_by_now(
        self, store: Store, clock: ManualClock
    ) -> None:
        topic = store.create_topic("t", config={"message.timestamp.before.max.ms": 1000})
        old = [("a", "1", clock())]
        topic.append(old, writer=("app", 1))
        clock.advance(2000)
        assert topic.append(old, writer=("app", 1)).is_repeat

    def test_versions_count_per_topic(self, store: Store) -> None:
        one, two = store.create_topic("one"), store.create_topic("two")
        one.append([("a", "1")], writer=("app", 1))
        assert not two.append([("a", "1")], writer=("app", 1)).is_repeat

    def test_an_empty_append_counts(self, store: Store) -> None:
        topic = store.create_topic("t")
        topic.append([], writer=("app", 3))
        assert topic.append([("a", "1")], writer=("app", 3)).is_repeat

    def test_a_race_of_the_same_version_is_won_once(self, store: Store) -> None:
        topic = store.create_topic("t", partitions=2)
        results = []
        barrier = threading.Barrier(6)

        def race() -> None:
            barrier.wait()
            results.append(topic.append([("a", "1"), ("b", "2")], writer=("app", 1)))

        threads = [threading.Thread(target=race) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(r.is_repeat for r in results) == [False, True, True, True, True, True]
        assert len({r.ranges for r in results}) == 1
        assert sum(1 for _ in topic.read()) == 2
        assert len(list(store.base.root.files())) == len(results[0].ranges)


class TestCommit:
    def test_an_append_over_two_topics_is_all_or_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        one, two = store.create_topic("one"), store.create_topic("two")
        batches = [t.prepare([("a", "1")], clock()) for t in (one, two)]
        two.delete()
        with pytest.raises(UnknownTopicError, match="no topic 'two'"):
            log_append.append(store.base.catalog, store.base.root, batches, clock())
        assert one.offsets() == {0: (0, 0)}
        assert list(store.base.root.files()) == []

    def test_a_policy_that_changed_meanwhile(self, store: Store, clock: ManualClock) -> None:
        topic = store.create_topic("t", config={"cleanup.policy": "delete"})
        batch = topic.prepare([(None, "x")], clock())
        topic.alter({"cleanup.policy": "compact"})
        with pytest.raises(InvalidRecordError, match="became compacted during the append"):
            log_append.append(store.base.catalog, store.base.root, [batch], clock())

    def test_a_file_that_gc_took_for_an_orphan(self, store: Store, clock: ManualClock) -> None:
        """However long ago: its bytes are gone, and so is the row that said so."""
        topic = store.create_topic("t")
        staged = _staged(store, topic, clock)
        assert [f.kind for f in store.gc(orphan_age_ms=0)] == ["orphan"]
        assert store.gc(orphan_age_ms=0) == []
        with pytest.raises(ConflictError, match="gc took it for an orphan; nothing was changed"):
            commits.commit_append(store.base.catalog, [topic.row], [staged], clock())
        assert topic.offsets() == {0: (0, 0)}

    def test_two_gcs_at_once(self, store: Store, clock: ManualClock) -> None:
        for _ in range(2):
            retired.condemn_orphans(store.base.catalog, [("t/0/x.parquet", 1)], clock())
        assert queries.deletable(store.base.catalog, clock()) == [("t/0/x.parquet", 1)]

    def test_a_grace_without_end(self, store: Store, clock: ManualClock) -> None:
        config = {"cleanup.policy": "delete", "file.delete.delay.ms": 2**63 - 1}
        topic = store.create_topic("t", config=config)
        write(topic, "a=1 | b=2*")
        topic.delete_records(0, 1)
        topic.delete()
        clock.advance(10**15)
        assert store.gc(orphan_age_ms=0) == []

    def test_gc_spares_a_file_that_was_committed_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        topic = store.create_topic("t")
        staged = _staged(store, topic, clock)
        commits.commit_append(store.base.catalog, [topic.row], [staged], clock())
        retired.condemn_orphans(store.base.catalog, [(staged.facts.path, 1)], clock())
        assert store.gc(orphan_age_ms=0) == []
        assert len(list(topic.read(0))) == 1

    def test_retention_of_a_topic_that_became_compacted(
        self, store: Store, clock: ManualClock
    ) -> None:
        topic = store.create_topic("t", config={"cleanup.policy": "delete"})
        write(topic, "a=1 | a=2*")
        row = topic.row
        topic.alter({"cleanup.policy": "compact"})
        with pytest.raises(ConflictError, match="were changed; nothing was dropped"):
            commits.commit_log_start(
                store.base.catalog, row, NewLogStart(0, 1, "retention"), clock()
            )
        assert topic.offsets() == {0: (0, 2)}

    def test_gc_that_forgets_a_writer_in_the_middle_of_its_append(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between insert and lock of its row; a race that only Postgres allows."""
        topic = store.create_topic("t")
        forgotten: list[bool] = []

        def select_after_gc(*columns: Any) -> Any:
            if columns == (schema.writer,) and not forgotten:
                forgotten.append(True)
                return select(schema.writer).where(schema.writer.c.writer_id == "nobody")
            return select(*columns)

        monkeypatch.setattr(writers, "appended_before", lambda *_: None)
        monkeypatch.setattr("lastword.topic.appended_before", lambda *_: None)
        monkeypatch.setattr(writers, "select", select_after_gc)
        assert not topic.append([("a", "1")], writer=("app", 1)).is_repeat
        assert forgotten

    def test_a_version_that_was_given_up_is_never_appended(
        self, store: Store, clock: ManualClock
    ) -> None:
        topic = store.create_topic("t")
        by = Writer("producer-1", 1, is_session=True)
        assert writers.give_up(store.base.catalog, by) is None
        late = commits.commit_append(
            store.base.catalog, [topic.row], [_staged(store, topic, clock)], clock(), by
        )
        assert (late.is_repeat, late.records) == (True, 0)
        assert topic.offsets() == {0: (0, 0)}

    def test_retention_that_was_altered_meanwhile(self, store: Store, clock: ManualClock) -> None:
        topic = store.create_topic("t", config={"cleanup.policy": "delete", "retention.ms": 1})
        write(topic, "a=1 | a=2*")
        row = topic.row
        topic.alter({"retention.ms": -1})
        new = NewLogStart(0, 1, "retention", under=row.config)
        with pytest.raises(ConflictError, match="were changed; nothing was dropped"):
            commits.commit_log_start(store.base.catalog, row, new, clock())
        assert topic.offsets() == {0: (0, 2)}

    def test_what_the_database_cannot_hold(self, store: Store) -> None:
        topic = store.create_topic("t")
        with pytest.raises((CatalogError, UnknownTopicError)):
            store.topic("\ud800")
        with pytest.raises(CatalogError, match="catalog of"):
            topic.offset_for_timestamp(0, 2**63)

    def test_producers_ids_are_forgotten_but_not_writers(self, store: Store) -> None:
        topic = store.create_topic("t")
        topic.append([("a", "1")], writer=("app", 1))
        producer = store.producer()
        producer.send("t", "b", "2")
        producer.flush()
        with store.base.catalog.read() as tx:
            assert len(tx.execute(select(schema.writer)).all()) == 2
        producer.close()
        with store.base.catalog.read() as tx:
            assert [r.writer_id for r in tx.execute(select(schema.writer))] == ["app"]

    def test_gc_forgets_producers_that_were_never_closed(
        self, store: Store, clock: ManualClock
    ) -> None:
        store.create_topic("t")
        producer = store.producer(linger_ms=10**6)
        producer.send("t", "b", "2")
        producer.flush()
        by = Writer(producer._id, 1, is_session=True)
        clock.advance(86_400_000)
        store.gc()
        assert writers.appended_before(store.base.catalog, by) is not None
        clock.advance(1)
        store.gc()
        assert writers.appended_before(store.base.catalog, by) is None


def _staged(store: Store, topic: Topic, clock: ManualClock) -> StagedFile:
    batch = topic.prepare([("a", "1")], clock())
    planned = list(log_append._plan(batch))
    return log_append.stage(store.base.root, planned, clock())[0]


class TestOpening:
    def test_it_stays_what_it_is(self, catalog_url: str, clock: ManualClock) -> None:
        with pytest.raises(NotAStoreError, match="no store is there"):
            lastword.open(catalog_url, create=False)
        with lastword.open(catalog_url, clock=clock) as store:
            write(store.create_topic("t"), "a=1*")
        with lastword.open(catalog_url, clock=clock, create=False) as store:
            assert shown(store.topic("t")) == "a=1*"

    @pytest.mark.parametrize(("version", "advice"), [(99, "upgrade lastword"), (0, "that made it")])
    def test_another_version(self, catalog_url: str, version: int, advice: str) -> None:
        with lastword.open(catalog_url) as store, store.base.catalog.write() as tx:
            tx.execute(update(schema.store).values(schema_version=version))
        with pytest.raises(CatalogVersionError, match=f"schema version {version}, .*{advice}"):
            lastword.open(catalog_url)

    def test_an_older_version_is_brought_up_to_date(
        self, postgres_url: str, tmp_path: Path, clock: ManualClock
    ) -> None:
        catalog_url = postgres_store_url(postgres_url, tmp_path / "data")
        with lastword.open(catalog_url, clock=clock) as store:
            write(store.create_topic("t"), "a=1 a=2")
            store.clean("t", runner=InProcess())
            with store.base.catalog.write() as tx:  # as version 4 made it
                tx.execute(text("ALTER TABLE topic DROP COLUMN paused_ms"))
                schema.pass_files.drop(tx)
                tx.execute(update(schema.store).values(schema_version=4))
        with lastword.open(catalog_url, clock=clock) as store:
            topic = store.topic("t")
            assert shown(topic) == "a=2"
            topic.pause()
            (done,) = store.passes("t")
            assert cleaning.pass_with_files(store.base.catalog, done.id) == (done, [])

    def test_one_of_version_4_becomes_as_one_that_is_made_now(self, tmp_path: Path) -> None:
        dump = Path(__file__).parent / "catalogs" / "version-4.sql"
        old, new = tmp_path / "old", tmp_path / "new"
        (old / "data").mkdir(parents=True)
        with closing(sqlite3.connect(old / "catalog.db")) as catalog:
            catalog.executescript(dump.read_text())
            (store_id,) = catalog.execute("SELECT id FROM store").fetchone()
        (old / "data" / "lastword-store").write_text(store_id)
        lastword.open(new).close()
        with lastword.open(old) as store:
            assert [(p.id, p.records_in, p.records_out) for p in store.passes("t")] == [(1, 2, 1)]
            store.topic("t").pause()
            store.topic("t").delete()
            write(store.create_topic("u"), "a=1 a=2")
            assert [p.id for p in store.clean("u", runner=InProcess())] == [2]  # 1 never comes back
        assert self.tables(old) == self.tables(new)

    def tables(self, store: Path) -> dict[str, object]:
        """What the tables and indexes of a catalog are like."""
        with closing(sqlite3.connect(store / "catalog.db")) as catalog:
            made = catalog.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
            return {
                name: (
                    "AUTOINCREMENT" in sql,
                    sorted(row[1:] for row in catalog.execute(f'PRAGMA table_info("{name}")')),
                    catalog.execute(f'PRAGMA foreign_key_list("{name}")').fetchall(),
                    catalog.execute(f'PRAGMA index_info("{name}")').fetchall(),
                )
                for name, sql in made.fetchall()
            }

    def test_a_catalog_that_is_gone_is_not_written_to(self, local: Store) -> None:
        """Else what is appended would be lost without a word."""
        topic = local.create_topic("t")
        path = Path(local.url) / "catalog.db"
        path.rename(path.with_name("elsewhere.db"))
        for ask in (lambda: topic.append([("a", "1")]), topic.describe):
            with pytest.raises(CatalogError, match="was moved, deleted or replaced"):
                ask()
        path.with_name("elsewhere.db").rename(path)
        topic.append([("a", "1")])

    def test_no_catalog_is_made_in_the_place_of_one_that_is_gone(self, local: Store) -> None:
        """Not even by a connection that is new to the pool."""
        path = Path(local.url) / "catalog.db"
        with local.base.catalog.read():  # the pool's only connection
            path.rename(path.with_name("elsewhere.db"))
            with pytest.raises(CatalogError, match="was moved, deleted or replaced"):
                local.topics()
        assert not path.exists()

    def test_a_server_that_does_not_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lastword.catalog.engine._CONNECT_TIMEOUT_S", "2")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/db?data_root=/nowhere"
            began = time.monotonic()
            with pytest.raises(CatalogError, match="timeout"):
                lastword.open(url)
            assert time.monotonic() - began < 60  # else it takes more than two minutes

    def test_opened_by_many_at_once(self, catalog_url: str) -> None:
        barrier = threading.Barrier(8)
        failures = []

        def make() -> None:
            barrier.wait()
            try:
                lastword.open(catalog_url).close()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=make) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []

    def test_a_new_file_that_another_is_making(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """SQLite says at once that it is locked; that must not be the end of it."""
        (tmp_path / "store").mkdir()
        with closing(sqlite3.connect(tmp_path / "store" / "catalog.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            waits: list[float] = []

            def wait(seconds: float) -> None:
                waits.append(seconds)
                other.rollback()

            monkeypatch.setattr("lastword.catalog.engine.sleep", wait)
            lastword.open(str(tmp_path / "store")).close()
        assert len(waits) == 1

    def test_a_new_file_that_stays_locked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lastword.catalog.engine._BUSY_TIMEOUT_MS", 1000)
        (tmp_path / "store").mkdir()
        with closing(sqlite3.connect(tmp_path / "store" / "catalog.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(CatalogError, match="kept it locked for 1 s; try again"):
                lastword.open(str(tmp_path / "store"))

    def test_a_snapshot_does_not_move(self, store: Store) -> None:
        topic = store.create_topic("t")
        with store.base.catalog.read() as tx:
            before = queries.store_overrides(tx)
            store.alter({"log.retention.ms": 1})
            topic.append([Record("a", "1")])
            assert queries.store_overrides(tx) == before == {}


def test_appends_beside_a_gc_without_patience(store: Store) -> None:
    """Every append either is in the log, readable, or says that it is not."""
    topic = store.create_topic("t", partitions=2)
    acknowledged: list[str] = []
    done = threading.Event()

    def write_on(name: str) -> None:
        for i in range(25):
            keys = [f"{name}-{i}-{j}" for j in range(4)]
            try:
                topic.append([(key, "x") for key in keys])
            except (ConflictError, StorageError):
                continue
            acknowledged.extend(keys)

    def collect() -> None:
        while not done.is_set():
            store.gc(orphan_age_ms=0)

    collector = threading.Thread(target=collect)
    writing = [threading.Thread(target=write_on, args=(name,)) for name in "abc"]
    for thread in (collector, *writing):
        thread.start()
    for thread in writing:
        thread.join()
    done.set()
    collector.join()
    assert sorted(r.key.decode() for r in topic.read() if isinstance(r.key, bytes)) == sorted(
        acknowledged
    )
    store.gc(orphan_age_ms=0)
    assert store.check(orphan_age_ms=0).is_clean


def test_files_are_known_by_their_paths(store: Store) -> None:
    topic = store.create_topic("t")
    write(topic, "a=1 | b=2*")
    known, retired = queries.known_paths(store.base.catalog)
    assert known == set(live_paths(topic))
    assert retired == set()
