"""Garbage: the bytes of retired files whose grace is over, and of files that no commit took.

1. orphans are condemned in the catalog     an append that still comes with one is refused
2. bytes are deleted                        rows without bytes: the next run forgets them
3. rows are forgotten
"""

from __future__ import annotations

from dataclasses import dataclass

from lastword.catalog import queries, retired
from lastword.catalog.engine import Catalog
from lastword.errors import ConflictError
from lastword.files.root import DataRoot

ORPHAN_AGE_MS = 24 * 3_600_000  # staging may take long; what is older was left by a crash


@dataclass(frozen=True)
class GarbageFile:
    """A file to delete. `kind`: 'retired' or 'orphan'."""

    kind: str
    path: str
    bytes: int


def find(
    catalog: Catalog, root: DataRoot, now_ms: int, orphan_age_ms: int | None = ORPHAN_AGE_MS
) -> list[GarbageFile]:
    """What may be deleted now. Without an age, orphans, for which all files are listed, are not."""
    due = [GarbageFile("retired", *row) for row in queries.deletable(catalog, now_ms)]
    if orphan_age_ms is None:
        return due
    stored = list(root.files())  # before the catalog is read: a file committed since is known
    known, awaiting = queries.known_paths(catalog)
    orphans = [
        GarbageFile("orphan", f.path, f.bytes)
        for f in stored
        if f.created_ms is not None
        and f.created_ms <= now_ms - orphan_age_ms
        and f.path not in known
        and f.path not in awaiting
    ]
    return due + sorted(orphans, key=lambda f: f.path)


def collect(
    catalog: Catalog, root: DataRoot, now_ms: int, orphan_age_ms: int | None = ORPHAN_AGE_MS
) -> list[GarbageFile]:
    """Delete it; what was deleted."""
    _refuse_others_files(catalog, root)
    found = find(catalog, root, now_ms, orphan_age_ms)
    orphans = [(f.path, f.bytes) for f in found if f.kind == "orphan"]
    if orphans:
        retired.condemn_orphans(catalog, orphans, now_ms)
    due = {path for path, _ in queries.deletable(catalog, now_ms)}
    deleted = [f for f in found if f.path in due]
    root.delete([f.path for f in deleted])
    retired.forget(catalog, [f.path for f in deleted])
    return deleted


def _refuse_others_files(catalog: Catalog, root: DataRoot) -> None:
    """Look again at whose files these are: what is deleted does not come back."""
    identity = catalog.identity()
    if identity is None or root.owner() != identity.store_id:
        raise ConflictError(f"{root.shown} is not, or no longer, this store's; nothing was deleted")
