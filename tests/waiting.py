"""To wait for what another thread or process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import event

from lastword.store import Store
from lastword.testing import ManualClock


def until(is_so: Callable[[], bool], seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


@contextmanager
def every_wait(store: Store, clock: ManualClock, ms: int) -> Iterator[None]:
    """As if every transaction had to wait so long for its lock."""
    engine = store.base.catalog._engine

    def wait(_: object) -> None:
        clock.advance(ms)

    event.listen(engine, "begin", wait)
    yield
    event.remove(engine, "begin", wait)
