"""A producer: records for any topics, gathered and appended together."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from lastword.catalog import queries
from lastword.catalog.writers import appended_before, forget_sessions, give_up
from lastword.errors import CatalogError, FlushError, InvalidArgumentError
from lastword.foundation import Foundation
from lastword.log import append, batch
from lastword.model import AppendResult, Header, Record, TopicRow, Writer
from lastword.topic import Topic

_log = logging.getLogger(__name__)

_RECORD_BYTES = 64  # what a record costs besides its bytes
_RETRY_S, _MOST_RETRY_S = 1, 60

_Pending = list[tuple[str, Record]]


class Producer:
    """Gathers records and appends them in batches, each all or nothing over all its topics.

    A batch goes when it has `batch_bytes`, when its first record has waited for `linger_ms`, and
    on `flush` and `close`. A batch that fails is kept and tried again as it was, under the same
    writer version: whatever became of the first try, its records are appended exactly once (as long
    as it is tried again within `producer.id.expiration.ms`).
    """

    def __init__(
        self, base: Foundation, *, batch_bytes: int = 16 << 20, linger_ms: int = 1_000
    ) -> None:
        self._base, self._batch_bytes, self._linger_s = base, batch_bytes, linger_ms / 1000
        self._id, self._version = f"producer-{secrets.token_hex(8)}", 0
        self._process = os.getpid()
        self._topics: dict[str, Topic] = {}
        self._rows: dict[str, TopicRow] = {}  # as of the last flush
        self._sealed: _Pending = []  # being appended, perhaps not for the first time
        self._gathered: _Pending = []
        self._gathered_bytes = 0
        self.appended = 0  # records, by this producer so far
        self._is_closed = False
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pending(self) -> int:
        """How many records have not been appended yet."""
        return len(self._sealed) + len(self._gathered)

    def send(
        self,
        topic: str,
        key: bytes | str | None,
        value: bytes | str | None,
        *,
        timestamp: int | None = None,
        headers: Iterable[Header] = (),
        partition: int | None = None,
    ) -> None:
        """Take a record. One that the topic refuses is refused here, at once.

        FlushError if the batch was full and could not be appended: this record is kept with it.
        """
        with self._entered():
            if self._is_closed:
                raise InvalidArgumentError("the producer is closed")
            now_ms = self._base.clock()
            stamp = now_ms if timestamp is None else timestamp
            record = Record(key, value, stamp, tuple(headers), partition)
            record = batch.checked_record(record, self._row(topic), now_ms)
            self._gathered.append((topic, record))
            self._gathered_bytes += _size(record)
            if self._gathered_bytes >= self._batch_bytes:
                self.flush()
            elif len(self._gathered) == 1:
                self._start_lingering()

    def flush(self) -> list[AppendResult]:
        """Append all that is pending; FlushError if that fails, and then it is kept."""
        with self._entered():
            results = []
            try:
                while self.pending:
                    results.append(self._append_batch())
            except Exception as error:
                raise FlushError(self.pending, error) from error
            return results

    def take_pending(self) -> list[tuple[str, Record]]:
        """Hand back what has not been appended, as (topic, record), and forget it here."""
        with self._entered():
            if self._sealed and give_up(self._base.catalog, self._writer()) is not None:
                self.appended += len(self._sealed)  # it was, only the answer got lost
                self._sealed = []
            taken = self._sealed + self._gathered
            self._sealed, self._gathered, self._gathered_bytes = [], [], 0
            return taken

    def close(self) -> None:
        """Flush, and end. If the flush fails the producer stays open, with what is pending."""
        with self._entered():
            if self._is_closed:
                return
            self.flush()
            self._is_closed = True
            self._wake.notify_all()
            if self._version:
                with suppress(CatalogError):  # all is appended; gc forgets the id later
                    forget_sessions(self._base.catalog, writer_id=self._id)
        if self._thread is not None:
            self._thread.join()

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Be the only thread inside, in the process that made the producer."""
        if os.getpid() != self._process:
            raise InvalidArgumentError(
                "this producer was made before a fork, by the parent process; make one here"
            )
        with self._lock:
            yield

    def _append_batch(self) -> AppendResult:
        if not self._sealed:
            self._sealed, self._gathered, self._gathered_bytes = self._gathered, [], 0
            self._version += 1
        result = appended_before(self._base.catalog, self._writer()) or self._append_sealed()
        self.appended += len(self._sealed)
        self._sealed = []
        return result

    def _append_sealed(self) -> AppendResult:
        by_topic: dict[str, list[Record]] = {}
        for name, record in self._sealed:
            by_topic.setdefault(name, []).append(record)
        self._rows.clear()  # settings may have changed
        now_ms = self._base.clock()
        batches = [
            self._topic(name).prepare(records, now_ms, is_late=True)
            for name, records in by_topic.items()
        ]
        return append.append(self._base.catalog, self._base.root, batches, now_ms, self._writer())

    def _writer(self) -> Writer:
        return Writer(self._id, self._version, is_session=True)

    def _row(self, name: str) -> TopicRow:
        if name not in self._rows:
            self._rows[name] = queries.topic_named(self._base.catalog, name)
        return self._rows[name]

    def _topic(self, name: str) -> Topic:
        """The topic's handle, which counts keyless records; a new one if it was made anew."""
        row = self._row(name)
        if name not in self._topics or self._topics[name].id != row.id:
            self._topics[name] = Topic(self._base, row)
        return self._topics[name]

    def _start_lingering(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._flush_lingering, daemon=True)
            self._thread.start()
        self._wake.notify_all()

    def _flush_lingering(self) -> None:
        """The thread that flushes what has waited long enough, and tries again what failed."""
        with self._lock:
            wait_s = self._linger_s
            while not self._is_closed:
                self._wake.wait_for(lambda: self.pending or self._is_closed)
                self._wake.wait_for(lambda: self._is_closed, timeout=wait_s)
                try:
                    self.flush()
                    wait_s = self._linger_s
                except FlushError as error:
                    _log.warning("%s", error)
                    wait_s = min(max(2 * wait_s, _RETRY_S), _MOST_RETRY_S)


def _size(record: Record) -> int:
    """About how much memory a record takes."""
    headers = sum(len(key) + len(value or b"") for key, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + _RECORD_BYTES
