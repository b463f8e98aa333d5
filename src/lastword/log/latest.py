"""Latest: which records are the last word on their key, whether or not anything was ever cleaned."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from lastword.files.root import DataRoot
from lastword.log.offset_map import Shard
from lastword.log.scan import Bools, Scan, Section


def alive(
    section: Section, root: DataRoot, map_bytes: int, paths: Collection[str]
) -> dict[str, Bools]:
    """The rows of these files that are the last of their key and no tombstone, by path.

    Reads keys only. Files that are not in it hold nothing but such rows, from log start on: no key
    comes twice in the clean section. A section may begin anywhere: what is newer decides.
    """
    read = [f.facts for f in section.to_read if f.facts.path in paths]
    found = {facts.path: np.ones(facts.records, np.bool_) for facts in read}
    pending = [Shard()]
    while pending:
        scan = Scan(section, root, pending.pop(), map_bytes)
        for rows in scan:
            if rows.file.facts.path not in found:
                continue
            dead = (rows.superseded_by >= 0) | rows.is_tombstone
            dead |= rows.is_null_key | rows.is_unreadable
            stop = rows.first_row + len(rows.offsets)
            found[rows.file.facts.path][rows.first_row : stop] &= ~dead
        pending += scan.let_go
    return found
