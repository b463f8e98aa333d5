"""The catalog's database: connecting, transactions, and its errors in our words.

SQLite: WAL, synchronous FULL (a commit is on disk when it returns), writers begin IMMEDIATE and
wait for each other. Postgres: a schema of its own, writers lock the rows they change, readers see
one snapshot. Both: `write()` is one transaction, all or nothing.
"""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError

from lastword.catalog import schema
from lastword.errors import CatalogError, CatalogVersionError, NotAStoreError

_BUSY_TIMEOUT_MS = 60_000


class Catalog:
    """One open catalog. Its functions are in the modules beside this one."""

    def __init__(self, engine: Engine, address: str) -> None:
        self.address = address
        self._engine = engine
        _engines.add(engine)

    def __repr__(self) -> str:
        return f"Catalog({self.address!r})"

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent snapshot. Does not wait for writers, nor they for it."""
        with self._translated(), self._engine.connect() as connection:
            if self._engine.dialect.name == "postgresql":
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

    def create_schema(self, data_root: str, now_ms: int) -> None:
        """Make the tables, unless another process has just made them."""
        with self.write() as tx:
            if self._engine.dialect.name == "postgresql":
                tx.execute(sa.text("SELECT pg_advisory_xact_lock(7240561)"))
                tx.execute(sa.text(f'CREATE SCHEMA IF NOT EXISTS "{self._pg_schema()}"'))
            if not sa.inspect(tx).has_table("store"):
                schema.metadata.create_all(tx)
                row = {"data_root": data_root, "created_ms": now_ms}
                tx.execute(schema.store.insert(), {"schema_version": schema.SCHEMA_VERSION, **row})

    def data_root(self) -> str | None:
        """The data root that the catalog records; None if there is no catalog yet."""
        with self.read() as tx:
            if not sa.inspect(tx).has_table("store"):
                return None
            row = tx.execute(sa.select(schema.store)).one_or_none()
        if row is None:
            raise NotAStoreError(self.address, "its catalog is empty; was it made by lastword?")
        if row.schema_version != schema.SCHEMA_VERSION:
            raise CatalogVersionError(self.address, row.schema_version, schema.SCHEMA_VERSION)
        return str(row.data_root)

    def close(self) -> None:
        self._engine.dispose()

    def _pg_schema(self) -> str:
        return str(self._engine.url.query.get("options", "")).partition("search_path=")[2]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise CatalogError(self.address, _in_words(error)) from error


def open_sqlite(path: str, address: str) -> Catalog:
    """The catalog in this SQLite file."""
    engine = sa.create_engine(URL.create("sqlite", database=path), hide_parameters=True)

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        connection.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("lastword_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return Catalog(engine, address)


def open_postgres(url: URL, pg_schema: str, address: str) -> Catalog:
    """The catalog in this schema of a Postgres database."""
    url = url.set(drivername="postgresql+psycopg").update_query_dict(
        {"options": f"-csearch_path={pg_schema}"}
    )
    return Catalog(sa.create_engine(url, hide_parameters=True, pool_pre_ping=True), address)


def author() -> str:
    """Who changes the log: host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _in_words(error: DBAPIError) -> str:
    problem = str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else "failed"
    if "database is locked" in problem:
        return f"another process has kept it locked for {_BUSY_TIMEOUT_MS // 1000} s; try again"
    if "disk is full" in problem:
        return "no space left on the disk; nothing was changed"
    if "not a database" in problem or "malformed" in problem:
        return f"{problem}; restore catalog.db from a copy"
    return problem


# A connection must not be shared with a forked child: SQLite's would corrupt the file.
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _forget_connections() -> None:
    for engine in _engines:
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_forget_connections)
