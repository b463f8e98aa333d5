"""A catalog that an older lastword made, brought up to date: a step for each version.

All steps are one transaction, so a crash leaves the old version. A step only adds: what is there stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from lastword.catalog import schema
from lastword.catalog.engine import Catalog


def _to_5(tx: Connection) -> None:
    """Topics can be paused; passes tell of their files."""
    tx.execute(sa.text("ALTER TABLE topic ADD COLUMN paused_ms BIGINT"))
    tx.execute(
        sa.text(
            "CREATE TABLE pass_files (pass_id BIGINT NOT NULL PRIMARY KEY "
            'REFERENCES "pass" (id) ON DELETE CASCADE, files JSON NOT NULL)'
        )
    )


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
