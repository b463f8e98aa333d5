"""A snapshot: what a table holds, and up to which offsets, in a local SQLite file.

It changes its values and its positions in one transaction, and is made anew beside itself and then put
into place: whenever the process dies, the file is what the topic was at its positions.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from lastword.errors import StorageError
from lastword.files.root import sync
from lastword.table_state import Pairs, Position, Positions, Told, tell_all

_FORMAT = 1
_SCHEMA = """
CREATE TABLE snapshot (format INTEGER, store_id TEXT, topic TEXT, topic_id INTEGER);
CREATE TABLE position (partition INTEGER PRIMARY KEY, position INTEGER, log_start INTEGER);
CREATE TABLE state (key BLOB NOT NULL, value BLOB NOT NULL);
"""
_MOST_CHANGED_BYTES = 64 << 20
_SQLITE = b"SQLite format 3\0"
_NOT_OURS = "is not a snapshot of a table; give another path"


class SnapshotOf(NamedTuple):
    """Whose state a snapshot holds."""

    store_id: str
    topic: str
    topic_id: int


class SnapshotState:
    """An SQLite file, which one process at a time may use, and what has changed since it was written.

    Changes gather in memory and are written when they are many, and on close. So a restart need not
    write what it reads; if the process dies, what was not written is read again.
    """

    def __init__(self, path: str | os.PathLike[str], of: SnapshotOf) -> None:
        self._path, self._of = os.path.abspath(path), of
        _refuse_strange(self._path)
        self._process = os.getpid()
        self._changed: dict[bytes, bytes | None] = {}
        self._changed_bytes = 0
        with self._translated():
            self._lock = _Lock(f"{self._path}.lock")
            try:
                self._db = self._opened(self._path)
                self.positions = self._stored_positions()
            except BaseException:
                self._lock.close()
                raise

    def get(self, key: bytes) -> bytes | None:
        if key in self._changed:
            return self._changed[key]
        with self._translated():
            row = self._db.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def keys(self) -> Iterator[bytes]:
        with self._translated():
            stored = [row[0] for row in self._db.execute("SELECT key FROM state")]
        unchanged = [key for key in stored if key not in self._changed]
        return iter(unchanged + [key for key, value in self._changed.items() if value is not None])

    def to_dict(self) -> dict[bytes, bytes]:
        with self._translated():
            found = dict(self._db.execute("SELECT key, value FROM state"))
        found.update(self._changed)
        return {key: value for key, value in found.items() if value is not None}

    def __len__(self) -> int:
        return sum(1 for _ in self.keys())

    def close(self) -> None:
        try:
            self._write()
        finally:
            self._db.close()
            self._lock.close()

    def change(self, pairs: Pairs, at: Positions, tell: Told | None = None) -> None:
        new = dict(pairs)  # all is read before anything is changed
        changes = [(key, self.get(key), value) for key, value in new.items()] if tell else []
        self._changed.update(new)
        self._changed_bytes += sum(len(k) + len(v or b"") for k, v in new.items())
        self.positions = at
        if self._changed_bytes > _MOST_CHANGED_BYTES:
            self._write()
        if tell:
            tell_all(tell, changes)

    def replace(self, pairs: Pairs, at: Positions, tell: Told | None = None) -> None:
        new_path = f"{self._path}.new"
        with self._translated():
            if tell:
                self._write()  # so that the old file can be compared
            _delete(new_path)
            new = self._filled(new_path, pairs, at)
            differences = list(self._differences(new)) if tell else []
            new.close()
            sync(new_path)
            self._db.close()
            try:
                for leftover in ("-wal", "-shm"):
                    with suppress(FileNotFoundError):
                        os.remove(self._path + leftover)
                os.replace(new_path, self._path)
            finally:
                self._db = self._opened(self._path)
        self._changed, self._changed_bytes = {}, 0
        self.positions = at
        if tell:
            tell_all(tell, differences)

    def _write(self) -> None:
        """Write what has changed, with its positions, in one transaction."""
        if not self._changed and self.positions == self._stored_positions():
            return
        ordered = sorted(self._changed.items())
        with self._translated(), _transaction(self._db):
            gone = ((key,) for key, value in ordered if value is None)
            self._db.executemany("DELETE FROM state WHERE key = ?", gone)
            set_ = "INSERT INTO state VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            self._db.executemany(set_, (pair for pair in ordered if pair[1] is not None))
            _store_positions(self._db, self.positions)
        self._changed, self._changed_bytes = {}, 0

    def _filled(self, path: str, pairs: Pairs, at: Positions) -> sqlite3.Connection:
        """A new file with these values, which needs no journal: it counts when it is in its place."""
        db = _connected(path)
        db.execute("PRAGMA journal_mode=OFF")
        db.execute("PRAGMA synchronous=OFF")
        db.executescript(_SCHEMA)
        with _transaction(db):
            values = ((key, value) for key, value in pairs if value is not None)
            db.executemany("INSERT INTO state VALUES (?, ?)", values)
            _store_positions(db, at)
            self._finish(db)
        return db

    def _differences(
        self, new: sqlite3.Connection
    ) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
        new.execute("ATTACH ? AS old", (self._path,))
        for sides in (
            "SELECT n.key, o.value, n.value FROM main.state n LEFT JOIN old.state o USING (key)",
            "SELECT o.key, o.value, n.value FROM old.state o LEFT JOIN main.state n USING (key)"
            " WHERE n.key IS NULL",
        ):
            yield from new.execute(sides)

    def _opened(self, path: str) -> sqlite3.Connection:
        """The snapshot there; an empty one if there is none, or if it is of another topic."""
        if os.path.exists(path) and os.path.getsize(path):
            db = _connected(path)
            tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
            if "snapshot" not in tables:
                db.close()
                raise StorageError(path, _NOT_OURS)
            found = db.execute("SELECT * FROM snapshot").fetchone()
            if found is not None and found[:3] != (_FORMAT, *self._of[:2]):
                db.close()
                raise StorageError(
                    path,
                    f"is a snapshot of topic {found[2]!r}, perhaps of another "
                    "store or version; give another path, or delete it",
                )
            if found == (_FORMAT, *self._of):
                db.execute("PRAGMA journal_mode=WAL")
                # A power cut may lose the newest changes, whole, with their positions.
                db.execute("PRAGMA synchronous=NORMAL")
                return db
            db.close()
            _delete(path)
        db = _connected(path)
        db.executescript(_SCHEMA)
        with _transaction(db):
            self._finish(db)
        return db

    def _finish(self, db: sqlite3.Connection) -> None:
        """The index, and whose it is: a file that does not say is not whole, and is made anew."""
        db.execute("CREATE UNIQUE INDEX state_key ON state (key)")
        db.execute("INSERT INTO snapshot VALUES (?, ?, ?, ?)", (_FORMAT, *self._of))

    def _stored_positions(self) -> Positions:
        rows = self._db.execute("SELECT * FROM position")
        return {number: Position(position, start) for number, position, start in rows}

    @contextmanager
    def _translated(self) -> Iterator[None]:
        if os.getpid() != self._process:
            raise StorageError(self._path, "this table was opened before a fork; open one here")
        try:
            yield
        except sqlite3.DatabaseError as error:
            is_damaged = "malformed" in str(error)
            advice = "; delete it: the table is restored from its topic" if is_damaged else ""
            raise StorageError(
                self._path, f"the snapshot cannot be used: {error}{advice}"
            ) from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise StorageError(self._path, f"the snapshot cannot be used: {reason}") from error


def _refuse_strange(path: str) -> None:
    """StorageError if nothing of ours can be at this path."""
    if os.path.isdir(path):
        raise StorageError(path, "is a folder; a snapshot is a file")
    if not os.path.isdir(os.path.dirname(path)):
        raise StorageError(path, "its folder does not exist")
    if os.path.isfile(path) and os.path.getsize(path):
        with open(path, "rb") as file:
            if file.read(len(_SQLITE)) != _SQLITE:
                raise StorageError(path, _NOT_OURS)


def _connected(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _store_positions(db: sqlite3.Connection, at: Positions) -> None:
    rows = ((number, *its) for number, its in at.items())
    db.executemany("REPLACE INTO position VALUES (?, ?, ?)", rows)


def _delete(path: str) -> None:
    for end in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            os.remove(path + end)


class _Lock:
    """Held as long as the process lives, or until it is closed."""

    def __init__(self, path: str) -> None:
        import fcntl  # which Windows does not have

        self._file = open(path, "w")  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise StorageError(
                path.removesuffix(".lock"),
                "another table uses this snapshot; give each its own path",
            ) from None

    def close(self) -> None:
        self._file.close()
