"""Alive: which records are the last word on their key, whether or not anything was ever cleaned."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum

import numpy as np

from lastword.files.root import DataRoot
from lastword.log.offset_map import Shard
from lastword.log.scan import Bools, Scan, Section


class Which(Enum):
    """Which last records are asked for."""

    VALUES = "values"
    TOMBSTONES = "tombstones"
    BOTH = "both"


def alive(
    section: Section,
    root: DataRoot,
    map_bytes: int,
    paths: Collection[str],
    which: Which = Which.VALUES,
    on_read: Callable[[int], None] = lambda _bytes: None,
) -> dict[str, Bools]:
    """The rows of these files that are the last of their key, by path.

    Reads keys only. Files that are not in it hold nothing but values that are the last of their key,
    from log start on: no key comes twice in the clean section. A section may begin anywhere: what is
    newer decides.
    """
    read = [f.facts for f in section.to_read if f.facts.path in paths]
    found = {facts.path: np.ones(facts.records, np.bool_) for facts in read}
    pending = [Shard()]
    while pending:
        scan = Scan(section, root, pending.pop(), map_bytes, on_read)
        for rows in scan:
            if rows.file.facts.path not in found:
                continue
            dead = (rows.superseded_by >= 0) | rows.is_null_key | rows.is_unreadable
            if which is Which.VALUES:
                dead |= rows.is_tombstone
            elif which is Which.TOMBSTONES:
                dead |= ~rows.is_tombstone
            stop = rows.first_row + len(rows.offsets)
            found[rows.file.facts.path][rows.first_row : stop] &= ~dead
        pending += scan.let_go
    return found
