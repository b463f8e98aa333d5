"""The service: rounds for ever.

A round: clean what is eligible, run retention, delete what was retired long enough; then sleep
`log.cleaner.backoff.ms` if nothing was cleaned. Settings are read anew in every round. Several
services may share a store: claims keep them apart. What goes wrong is told, and tried again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from lastword import garbage, retention
from lastword.catalog import claims, queries
from lastword.catalog.topics import store_settings
from lastword.catalog.writers import forget_sessions
from lastword.cleaner.choose import Asked
from lastword.cleaner.run import Cleaner, Round
from lastword.errors import LastwordError
from lastword.foundation import Foundation
from lastword.garbage import GarbageFile
from lastword.jobs.runner import Runner

_ORPHANS_EVERY_MS = 3_600_000


@dataclass(frozen=True)
class Told:
    """What a round did, or what went wrong; and how long the service sleeps now."""

    done: Round = field(default_factory=Round)
    deleted: tuple[GarbageFile, ...] = ()
    trouble: str | None = None
    sleep_ms: int = 0


class Service:
    """Keeps a store compacted until it is told to stop."""

    def __init__(
        self,
        base: Foundation,
        new_runner: Callable[[], Runner],
        tell: Callable[[Told], None],
        stop: threading.Event,
    ) -> None:
        self._base, self._new_runner, self._tell, self._stop = base, new_runner, tell, stop
        self._expired_ms = self._orphans_ms = 0

    def run(self) -> None:
        """Rounds, until `stop` is set. An interruption abandons the running pass."""
        backoff_ms = 0
        while not self._stop.is_set():
            try:
                with Cleaner(self._base, self._new_runner()) as cleaner:
                    while not self._stop.is_set():
                        backoff_ms = store_settings(self._base.catalog).log_cleaner_backoff_ms
                        self._told(self._round(cleaner, backoff_ms))
            except LastwordError as error:
                self._told(Told(trouble=str(error), sleep_ms=max(1_000, backoff_ms)))

    def _told(self, told: Told) -> None:
        self._tell(told)
        self._stop.wait(told.sleep_ms / 1000)

    def _round(self, cleaner: Cleaner, backoff_ms: int) -> Told:
        base, now_ms = self._base, self._base.clock()
        claims.renew(base.catalog, cleaner.id, base.clock)
        settings, topics = store_settings(base.catalog), queries.topics(base.catalog)
        done = Round()
        if settings.log_cleaner_enable:
            done = cleaner.round(topics, Asked(retry=False))
        if now_ms - self._expired_ms >= settings.log_retention_check_interval_ms:
            self._expired_ms = now_ms
            plain = [t for t in topics if t.config.is_delete and not t.config.is_compact]
            more = retention.expire(base.catalog, plain, now_ms)
            done = Round(done.passes, (*done.expired, *more), done.decisions)
        forget_sessions(base.catalog, before_ms=now_ms - settings.producer_id_expiration_ms)
        sleep_ms = backoff_ms if all(p.error for p in done.passes) else 0
        try:
            return Told(done, self._deleted(now_ms), sleep_ms=sleep_ms)
        except LastwordError as error:  # what was cleaned is told all the same
            return Told(done, trouble=str(error), sleep_ms=sleep_ms)

    def _deleted(self, now_ms: int) -> tuple[GarbageFile, ...]:
        """The garbage that was collected: what is due now, and orphans once an hour."""
        age_ms = None
        if now_ms - self._orphans_ms >= _ORPHANS_EVERY_MS:
            self._orphans_ms, age_ms = now_ms, garbage.ORPHAN_AGE_MS
        return tuple(garbage.collect(self._base.catalog, self._base.root, now_ms, age_ms))
