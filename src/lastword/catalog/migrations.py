"""A catalog that an older lastword made, brought up to date: a step for each version.

All steps are one transaction, so a crash leaves the old version. A step only adds: what is there stays.
Each says in SQL of its own what to do, since the schema in `schema.py` will have moved on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from lastword.catalog import schema
from lastword.catalog.engine import Catalog


def _to_5(tx: Connection) -> None:
    """Topics can be paused; passes tell of their files, and their ids never come back."""
    is_sqlite = tx.dialect.name == "sqlite"
    long = "INTEGER" if is_sqlite else "BIGINT"
    tx.exec_driver_sql(f"ALTER TABLE topic ADD COLUMN paused_ms {long}")
    if is_sqlite:
        _never_reuse_pass_ids(tx)
    tx.exec_driver_sql(
        f"CREATE TABLE pass_files (pass_id {long} NOT NULL PRIMARY KEY "
        'REFERENCES "pass" (id) ON DELETE CASCADE, files JSON NOT NULL)',
    )


def _never_reuse_pass_ids(tx: Connection) -> None:
    """The table anew, with AUTOINCREMENT, which SQLite cannot add to one that there is."""
    of_pass = "FROM sqlite_master WHERE tbl_name = 'pass' AND sql IS NOT NULL"
    table = tx.scalar(sa.text(f"SELECT sql {of_pass} AND type = 'table'")) or ""
    indexes = tx.scalars(sa.text(f"SELECT sql {of_pass} AND type = 'index'")).all()
    its_id = "id INTEGER NOT NULL"
    anew = table.replace(its_id, f"{its_id} PRIMARY KEY AUTOINCREMENT", 1)
    tx.exec_driver_sql('ALTER TABLE "pass" RENAME TO pass_4')
    tx.exec_driver_sql(anew.replace("PRIMARY KEY (id),", ""))
    tx.exec_driver_sql('INSERT INTO "pass" SELECT * FROM pass_4')
    for statement in ("DROP TABLE pass_4", *indexes):
        tx.exec_driver_sql(statement)


_STEPS: Mapping[int, Callable[[Connection], None]] = {4: _to_5}  # from this version


def can_migrate(version: int) -> bool:
    """Whether there is a way from this version."""
    return version in _STEPS


def migrate(catalog: Catalog) -> None:
    """Bring the catalog to this lastword's version, unless another process has just done so."""
    with catalog.write() as tx:
        version = tx.execute(sa.select(schema.store).with_for_update()).one().schema_version
        while version in _STEPS:
            _STEPS[version](tx)
            version += 1
        tx.execute(schema.store.update().values(schema_version=version))
