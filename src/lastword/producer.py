"""A producer: records for any topics, gathered and appended together."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterable

from lastword.catalog import commits, queries
from lastword.errors import FlushError, LastwordError
from lastword.foundation import Foundation
from lastword.log import append, batch
from lastword.model import AppendResult, Header, Record, TopicRow, Writer
from lastword.topic import Topic

_log = logging.getLogger(__name__)

_Pending = list[tuple[str, Record]]


class Producer:
    """Gathers records and appends them in batches, each all or nothing over all its topics.

    A batch goes when it has `batch_bytes`, when its first record has waited for `linger_ms`, and
    on `flush` and `close`. A batch that fails is kept and tried again as it was, under the same
    writer version: whatever became of the first try, its records are appended exactly once.
    """

    def __init__(
        self, base: Foundation, *, batch_bytes: int = 16 << 20, linger_ms: int = 1_000
    ) -> None:
        self._base, self._batch_bytes, self._linger_s = base, batch_bytes, linger_ms / 1000
        self._id, self._version = f"producer-{secrets.token_hex(8)}", 0
        self._topics: dict[str, tuple[Topic, TopicRow]] = {}
        self._sealed: _Pending = []  # being appended, perhaps not for the first time
        self._gathered: _Pending = []
        self._gathered_bytes = 0
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
        with self._lock:
            if self._is_closed:
                raise ValueError("the producer is closed")
            now_ms = self._base.clock()
            stamp = now_ms if timestamp is None else timestamp
            record = Record(key, value, stamp, tuple(headers), partition)
            record = batch.checked_record(record, self._topic(topic)[1], now_ms)
            self._gathered.append((topic, record))
            self._gathered_bytes += len(record.key or b"") + len(record.value or b"")
            if self._gathered_bytes >= self._batch_bytes:
                self.flush()
            elif len(self._gathered) == 1:
                self._start_lingering()

    def flush(self) -> list[AppendResult]:
        """Append all that is pending; FlushError if that fails, and then it is kept."""
        with self._lock:
            results = []
            try:
                while self.pending:
                    results.append(self._append_batch())
            except LastwordError as error:
                raise FlushError(self.pending, error) from error
            return results

    def take_pending(self) -> list[tuple[str, Record]]:
        """Hand back what has not been appended, as (topic, record), and forget it here."""
        with self._lock:
            taken = self._sealed + self._gathered
            self._sealed, self._gathered, self._gathered_bytes = [], [], 0
            return taken

    def close(self) -> None:
        """Flush, and end. If the flush fails the producer stays open, with what is pending."""
        with self._lock:
            if self._is_closed:
                return
            self.flush()
            self._is_closed = True
            self._wake.notify_all()
            if self._version:
                commits.forget_writers(self._base.catalog, writer_id=self._id)
        if self._thread is not None:
            self._thread.join()

    def _append_batch(self) -> AppendResult:
        if not self._sealed:
            self._sealed, self._gathered, self._gathered_bytes = self._gathered, [], 0
            self._version += 1
        by_topic: dict[str, list[Record]] = {}
        for name, record in self._sealed:
            by_topic.setdefault(name, []).append(record)
        self._topics.clear()  # settings may have changed
        now_ms = self._base.clock()
        batches = [self._topic(t)[0].prepare(records, now_ms) for t, records in by_topic.items()]
        by = Writer(self._id, self._version, is_session=True)
        result = append.append(self._base.catalog, self._base.root, batches, now_ms, by)
        self._sealed = []
        return result

    def _topic(self, name: str) -> tuple[Topic, TopicRow]:
        if name not in self._topics:
            topic = Topic(self._base, queries.topic_named(self._base.catalog, name))
            self._topics[name] = (topic, topic.row)
        return self._topics[name]

    def _start_lingering(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._flush_lingering, daemon=True)
            self._thread.start()
        self._wake.notify_all()

    def _flush_lingering(self) -> None:
        """The thread that flushes what has waited long enough."""
        while True:
            with self._lock:
                self._wake.wait_for(lambda: self._gathered or self._is_closed)
                self._wake.wait_for(lambda: self._is_closed, timeout=self._linger_s)
                if self._is_closed:
                    return
                try:
                    self.flush()
                except FlushError as error:
                    _log.warning("%s", error)
