"""Messages that no other test provokes: each is said once, and says what to do."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy.exc import OperationalError

import lastword
from lastword.catalog import engine
from lastword.catalog.commits import commit_append
from lastword.config import Compression
from lastword.errors import CatalogError, StorageError, UnknownTopicError
from lastword.files import parquet
from lastword.files.root import translated
from lastword.model import StagedFile
from lastword.store import Store
from lastword.testing import ManualClock
from lastword.topic import Topic


def test_a_catalog_that_stays_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_BUSY_TIMEOUT_MS", 1)
    with lastword.open(tmp_path / "s") as store:
        other = sqlite3.connect(tmp_path / "s" / "catalog.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CatalogError, match="another process has kept it locked .* try again"):
            store.create_topic("t")
        assert store.topics() == []  # readers do not wait
        other.execute("ROLLBACK")
        other.close()


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        ("database or disk is full", "no space left on the disk; nothing was changed"),
        ("disk I/O error", "if the disk is full, free some space and try again"),
        ("unable to open database file", "SQLite must be able to write in the store's folder"),
        ("attempt to write a readonly database", "must be able to write"),
        ("database disk image is malformed", "restore catalog.db from a copy"),
        ("something new", "something new"),
        ("", "failed"),
    ],
)
def test_what_a_database_says(problem: str, words: str) -> None:
    error = OperationalError("SELECT 'SECRET'", {}, Exception(problem))
    assert words in engine._in_words(error)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(errno.EACCES, "denied"), "no permission; check who owns it"),
        (OSError(errno.ENOSPC, "full"), "no space left; free some and try again"),
        (OSError(errno.EDQUOT, "quota"), "no space left"),
        (FileNotFoundError(errno.ENOENT, "gone"), "not found"),
        (NotADirectoryError(errno.ENOTDIR, "no", "/a/file"), "/a/file is not a folder"),
        (OSError("GET 's3://key:HUSH@bucket/x' failed"), "GET 's3://bucket/x' failed"),
    ],
)
def test_what_a_file_system_says(error: OSError, words: str) -> None:
    with pytest.raises(StorageError) as raised, translated("where"):
        raise error
    assert str(raised.value) == f"where: {words}" or words in str(raised.value)
    assert "HUSH" not in str(raised.value)


class TestWhatCheckSees:
    """Files that only a bug of ours, or a vandal, could have written."""

    def test_offsets_that_do_not_grow(self, local: Store, clock: ManualClock) -> None:
        _commit(local, local.create_topic("t"), clock, deltas=[1, 0])
        details = [p.detail.partition(".parquet: ")[2] for p in local.check().problems]
        assert "its offsets do not grow" in details

    def test_tombstones_that_are_none(
        self, local: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as wrong:
            wrong.setattr(parquet, "tombstones_in", lambda r: pa.array([True] * r.num_rows))
            _commit(local, local.create_topic("t"), clock, deltas=[0, 1])
        details = [p.detail.partition(".parquet: ")[2] for p in local.check().problems]
        assert details == ["tombstones and null values differ"]


def _commit(store: Store, topic: Topic, clock: ManualClock, deltas: list[int]) -> None:
    records = topic.prepare([("a", "1"), ("b", "2")], clock()).records
    records = records.append_column("offset_delta", pa.array(deltas))
    path = store.base.root.new_path("t", 0, clock())
    facts = parquet.write_file(store.base.root, path, [records], Compression.LZ4)
    commit_append(store.base.catalog, [topic.row], [StagedFile(topic.id, 0, facts)], clock())


def test_a_topic_deleted_between_two_questions(
    local: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = local.create_topic("t")
    row = topic.row
    topic.delete()
    monkeypatch.setattr(Topic, "row", row)
    for ask in (topic.offsets, topic.roll, topic.delete, lambda: topic.alter({"segment.ms": 1})):
        with pytest.raises(UnknownTopicError, match="no topic 't'"):
            ask()
