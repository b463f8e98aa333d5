"""The catalog's database: connecting, transactions, and its errors in our words.

SQLite: WAL, synchronous FULL (a commit is on disk when it returns), writers begin IMMEDIATE and
wait for each other. Postgres: a schema of its own, writers lock the rows they change, readers see
one snapshot. Both: `write()` is one transaction, all or nothing.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from lastword.catalog import schema
from lastword.errors import CatalogError, CatalogVersionError, NotAStoreError

_BUSY_TIMEOUT_MS = 60_000
_BUSY_LOOK_S = 0.02
_POOL_TIMEOUT_S = 180  # longer: who waits for a connection waits for those who wait for the lock
_CONNECT_TIMEOUT_S = "10"  # to a server that does not answer


@dataclass(frozen=True)
class Identity:
    """Which store a catalog is of, and where its files lie."""

    store_id: str
    data_root: str


class Catalog:
    """One open catalog. Its functions are in the modules beside this one."""

    def __init__(self, engine: Engine, address: str, pg_schema: str = "") -> None:
        self.address = address
        self._engine, self._pg_schema = engine, pg_schema
        _engines.add(engine)

    def __repr__(self) -> str:
        return f"Catalog({self.address!r})"

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent snapshot. Does not wait for writers, nor they for it."""
        with self._translated(), self._engine.connect() as connection:
            if self._pg_schema:
                connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction: committed when the block ends, undone when it raises."""
        with self._translated(), self._engine.connect() as connection:
            connection.execution_options(lastword_write=True)
            with connection.begin():
                yield connection

    def create_schema(self, data_root: str, now_ms: int, claim: Callable[[str], None]) -> None:
        """Make the tables, unless another process has just made them.

        `claim` is called with the new store's id; if it fails, there is no store.
        """
        with self.write() as tx:
            if self._pg_schema:
                tx.execute(sa.text("SELECT pg_advisory_xact_lock(7240561)"))
                tx.execute(sa.text(f'CREATE SCHEMA IF NOT EXISTS "{self._pg_schema}"'))
            if not sa.inspect(tx).has_table("store"):
                schema.metadata.create_all(tx)
                store_id = uuid.uuid4().hex
                identity = {"schema_version": schema.SCHEMA_VERSION, "id": store_id}
                where = {"data_root": data_root, "created_ms": now_ms}
                tx.execute(schema.store.insert(), {**identity, **where})
                claim(store_id)

    def identity(self) -> Identity | None:
        """Which store this is; None if there is no catalog yet."""
        with self.read() as tx:
            if not sa.inspect(tx).has_table("store"):
                return None
            version = tx.scalar(sa.select(schema.store.c.schema_version))
            if version is None:
                raise NotAStoreError(self.address, "its catalog is empty; was it made by lastword?")
            if version != schema.SCHEMA_VERSION:
                raise CatalogVersionError(self.address, version, schema.SCHEMA_VERSION)
            row = tx.execute(sa.select(schema.store)).one()
        return Identity(row.id, row.data_root)

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise CatalogError(self.address, _in_words(error)) from error
        except (SQLAlchemyError, OverflowError, UnicodeError) as error:
            raise CatalogError(self.address, str(error).splitlines()[0]) from error


def open_sqlite(path: str, address: str) -> Catalog:
    """The catalog in this SQLite file."""
    url = URL.create("sqlite", database=path)
    engine = sa.create_engine(url, hide_parameters=True, pool_timeout=_POOL_TIMEOUT_S)

    opened: set[int] = set()  # what the file is known by, as long as it stays where it is

    def check_place() -> None:
        if opened and _inode(path) not in opened:
            raise CatalogError(
                address,
                f"{path} was moved, deleted or replaced; start anew what has the store open",
            )

    @event.listens_for(engine, "do_connect")
    def _connect(*_: object) -> None:
        check_place()  # before SQLite makes a new file in the place of one that is gone

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        connection.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
        _use_wal(connection)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        opened.update([_inode(path)] if not opened else [])
        check_place()
        writes = connection.get_execution_options().get("lastword_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return Catalog(engine, address)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Does nothing but look where it was done before.

    Who is first at a new file must wait for the others by hand: from a lock that was taken to read
    SQLite never waits for one to write, but says at once that it is locked.
    """
    give_up = monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or monotonic() > give_up:
                raise
            sleep(_BUSY_LOOK_S)


def _is_busy(error: sqlite3.Error) -> bool:
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # the other bits say why


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1


def open_postgres(url: URL, pg_schema: str, address: str) -> Catalog:
    """The catalog in this schema of a Postgres database."""
    options = f"{url.query.get('options', '')} -csearch_path={pg_schema}".strip()
    if "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": _CONNECT_TIMEOUT_S})
    url = url.set(drivername="postgresql+psycopg").update_query_dict({"options": options})
    engine = sa.create_engine(
        url, hide_parameters=True, pool_pre_ping=True, pool_timeout=_POOL_TIMEOUT_S
    )
    return Catalog(engine, address, pg_schema)


def insert_if_new(tx: Connection, table: sa.Table, **row: object) -> None:
    """Insert the row, unless one with its key is there."""
    dialect = postgresql if tx.dialect.name == "postgresql" else sqlite
    tx.execute(dialect.insert(table).values(**row).on_conflict_do_nothing())


def lock_named(tx: Connection, name: str) -> None:
    """Be the only transaction that has this name; SQLite's writers are alone anyway."""
    if tx.dialect.name == "postgresql":
        tx.execute(
            sa.text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": name}
        )


def author() -> str:
    """Who changes the log: host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _in_words(error: DBAPIError) -> str:
    problem = str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else "failed"
    if "database is locked" in problem:
        return f"another process has kept it locked for {_BUSY_TIMEOUT_MS // 1000} s; try again"
    if "disk is full" in problem:
        return "no space left on the disk; nothing was changed"
    if "disk I/O error" in problem:
        return "disk I/O error; if the disk is full, free some space and try again"
    if "unable to open" in problem or "readonly" in problem:
        return f"{problem}; SQLite must be able to write in the store's folder, even to read"
    if "not a database" in problem or "malformed" in problem:
        return f"{problem}; restore catalog.db from a copy"
    return problem


# A connection must not be shared with a forked child: SQLite's would corrupt the file.
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _forget_connections() -> None:
    for engine in _engines:
        engine.dispose(close=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_connections)
