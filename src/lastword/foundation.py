"""What every part of an open store stands on."""

from __future__ import annotations

from dataclasses import dataclass

from lastword.catalog.engine import Catalog
from lastword.clock import Clock
from lastword.files.root import DataRoot


@dataclass(frozen=True)
class Foundation:
    """The catalog, the data root, and the time."""

    catalog: Catalog
    root: DataRoot
    clock: Clock
