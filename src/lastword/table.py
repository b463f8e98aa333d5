"""A table: a mapping that is restored from its topic and follows it.

It reads what changed since its positions. The classic bug is a missed deletion: a tombstone that the
cleaner has removed before the table had read it. The catalog knows the position from which on no
tombstone has gone; a table that is behind it is restored as a whole. So it is when retention has raised
log start: what is no longer in the log is no longer in the table.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import ItemsView, Iterable, Iterator, MutableMapping, Sequence, ValuesView
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from lastword.catalog import queries
from lastword.errors import (
    ConflictError,
    InvalidArgumentError,
    LastwordError,
    MissedTombstonesError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from lastword.foundation import Foundation
from lastword.log.append import append
from lastword.log.batch import checked
from lastword.log.changes import changes
from lastword.log.latest import LastRecords, Latest, Progress, moment_of
from lastword.log.lookup import Lookup
from lastword.log.records import as_key, to_table
from lastword.model import AppendResult, Record, TopicRow
from lastword.partitioner import partition_for
from lastword.snapshot import SnapshotOf, SnapshotState
from lastword.table_state import (
    Change,
    MemoryState,
    Position,
    Positions,
    State,
    Told,
)

__all__ = ["Change", "Table"]

_log = logging.getLogger(__name__)

_TRIES = 5
_MOST_LOOKED_UP = 1_000  # changed keys of a scattered topic; if more, it is restored


class Table(MutableMapping[bytes, bytes]):
    """The current values of a topic. What is set or deleted here is appended to the topic first.

    Keys and values are bytes; text is encoded as UTF-8. It shows the topic as of the last `refresh`,
    and always what this table itself wrote. Safe to use from several threads; while another one
    refreshes it, `to_dict()`, `items()` and `values()` show one moment, a loop over its keys does not.

    Callbacks are called in the thread that reads or writes, when it is done: at most once, for they
    are not called again if the process dies before. To feed another store, use a Consumer, or
    `Topic.changes` with the position kept in that store.
    """

    def __init__(
        self,
        base: Foundation,
        topic: TopicRow,
        *,
        snapshot: str | os.PathLike[str] | None = None,
        refresh_ms: int | None = None,
        on_change: Told | None = None,
        progress: Progress | None = None,
    ) -> None:
        if refresh_ms is not None and refresh_ms < 1:
            raise InvalidArgumentError(f"refresh_ms is 1 or more, not {refresh_ms}")
        if on_change is not None and not callable(on_change):
            raise InvalidArgumentError(f"on_change is a function, not {on_change!r:.80}")
        self._base, self._topic, self._lookup = base, topic, Lookup(base, topic)
        self._tell: Told | None = None  # what is restored is no change
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._state: State = MemoryState()
        if snapshot is not None:
            identity = base.catalog.identity()
            store_id = identity.store_id if identity else ""
            self._state = SnapshotState(snapshot, SnapshotOf(store_id, topic.name, topic.id))
        self.refreshed_ms = 0  # when it was last known to be up to date
        try:
            self.refresh(progress)
        except BaseException:
            self._state.close()
            raise
        self._tell = on_change
        self._thread: threading.Thread | None = None
        if refresh_ms is not None:
            self._thread = threading.Thread(target=self._follow, args=(refresh_ms,), daemon=True)
            self._thread.start()

    def __repr__(self) -> str:
        state = "closed" if self._closed.is_set() else f"{len(self)} keys"
        return f"Table({self._topic.name!r}, {state})"

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End following it; a snapshot may then be opened by another."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with self._lock:
            self._state.close()

    @property
    def position(self) -> dict[int, int]:
        """Up to which offset of each partition it is true."""
        return {number: at.position for number, at in self._state.positions.items()}

    def refresh(self, progress: Progress | None = None) -> None:
        """Read what is new in the topic."""
        with self._lock:
            self._refuse_closed()
            now_ms = self._base.clock()
            _, rows = queries.bounds(self._base.catalog, self._topic.id, self._topic.name)
            now = {row.partition: Position(row.log_end, row.log_start) for row in rows}
            if now != self._state.positions:
                self._catch_up(progress)
            self.refreshed_ms = now_ms

    def __getitem__(self, key: bytes | str) -> bytes:
        with self._open() as state:
            found = state.get(as_key(key))
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: bytes | str, value: bytes | str) -> None:
        self._write([(key, value)])

    def __delitem__(self, key: bytes | str) -> None:
        with self._lock:
            if key not in self:
                raise KeyError(key)
            self._append([(key, None)])

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, (bytes, str)):
            return False
        with self._open() as state:
            return state.get(as_key(key)) is not None

    def __iter__(self) -> Iterator[bytes]:
        with self._open() as state:
            return state.keys()

    def __len__(self) -> int:
        with self._open() as state:
            return len(state)

    def to_dict(self) -> dict[bytes, bytes]:
        """Keys and values at one moment."""
        with self._open() as state:
            return state.to_dict()

    def items(self) -> ItemsView[bytes, bytes]:
        return self.to_dict().items()

    def values(self) -> ValuesView[bytes]:
        return self.to_dict().values()

    def update(self, other: Any = (), /, **named: bytes | str) -> None:
        """Set many, in one append: all or nothing."""
        self._write(dict(other, **named).items())

    def clear(self) -> None:
        """Delete every key, in one append."""
        with self._lock:
            self._append([(key, None) for key in self])

    def _write(self, pairs: Iterable[tuple[bytes | str, bytes | str]]) -> None:
        given = list(pairs)
        if any(value is None for _, value in given):
            raise InvalidArgumentError("a table's value cannot be None; to delete a key, use del")
        with self._lock:
            self._append(given)

    def _append(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Append to the topic, and show it here at once."""
        self._refuse_closed()
        given, now_ms = to_table(pairs), self._base.clock()
        if not given.num_rows:
            return
        topic = queries.topic_by_id(self._base.catalog, self._topic.id, self._topic.name)
        records = self._with_burials(given, topic) if topic.is_scattered else given
        ready = checked(records, topic, now_ms, keyless=0)
        result = append(self._base.catalog, self._base.root, [ready], now_ms)
        moved = self._moved_by(result)
        if moved is None:
            self.refresh()  # others have written in between
        else:
            written = zip(given["key"].to_pylist(), given["value"].to_pylist(), strict=True)
            self._state.change(written, moved, self._tell)

    def _with_burials(self, given: pa.Table, topic: TopicRow) -> pa.Table:
        """The records, and tombstones in the other partitions that have a value of their keys."""
        keys = given["key"].unique()
        named = partition_for(keys, topic.partitions).tolist()
        graves = [
            Record(key, None, partition=record.partition)
            for key, number in zip(keys.to_pylist(), named, strict=True)
            for record in self._lookup.lasts(key)
            if record.value is not None and record.partition != number
        ]
        return pa.concat_tables([to_table(graves), given])

    @contextmanager
    def _open(self) -> Iterator[State]:
        """The state, for one thread at a time."""
        with self._lock:
            self._refuse_closed()
            yield self._state

    def _refuse_closed(self) -> None:
        if self._closed.is_set():
            raise InvalidArgumentError(f"the table of {self._topic.name!r} is closed")

    def _moved_by(self, result: AppendResult) -> Positions | None:
        """The positions after our append; None if not all before it was read."""
        at = dict(self._state.positions)
        for r in result.ranges:
            known = at.get(r.partition)
            if known is None or known.position != r.base_offset:
                return None
            at[r.partition] = known._replace(position=r.last_offset + 1)
        return at

    def _catch_up(self, progress: Progress | None) -> None:
        """Read what changed; everything, if that is not enough."""
        for tries_left in reversed(range(_TRIES)):
            try:
                if not self._read_changes(progress):
                    self._restore(progress)
                return
            except ConflictError:  # a file has gone meanwhile
                if not tries_left:
                    raise

    def _read_changes(self, progress: Progress | None) -> bool:
        """Apply what changed; False if deletions may have been missed, or the log begins elsewhere."""
        known = self._state.positions
        if not known:
            return False
        try:
            new = changes(self._base, self._topic, self.position, progress=progress)
        except (MissedTombstonesError, OffsetOutOfRangeError):
            return False
        at = _at(new)
        if any(at[number].log_start != its.log_start for number, its in known.items()):
            return False
        if not new.topic.is_scattered:
            self._state.change(_pairs(new, ["key", "value"]), at, self._tell)
            return True
        keys = dict.fromkeys(key for (key,) in _pairs(new, ["key"]))
        if len(keys) > _MOST_LOOKED_UP:
            return False
        lasts = ((key, self._lookup.last(key)) for key in keys)  # which may be in any partition
        pairs = ((key, None if r is None else r.value) for key, r in lasts)
        self._state.change(pairs, at, self._tell)  # type: ignore[arg-type]
        return True

    def _restore(self, progress: Progress | None) -> None:
        """Take everything from the topic."""
        if self._state.positions:
            _log.info("the table of %s is restored as a whole", self._topic.name)
        moment = moment_of(self._base, self._topic)
        latest = Latest(self._base, moment, progress=progress)
        self._state.replace(_pairs(latest, ["key", "value"]), _at(latest), self._tell)

    def _follow(self, refresh_ms: int) -> None:
        """The thread that refreshes; what fails is tried again."""
        while not self._closed.wait(refresh_ms / 1000):
            try:
                self.refresh()
            except UnknownTopicError as error:
                _log.error("the table is no longer refreshed: %s", error)
                return
            except LastwordError as error:
                _log.warning("the table of %s is not up to date: %s", self._topic.name, error)
            except Exception:
                _log.exception("a callback of the table of %s failed", self._topic.name)


def _at(view: LastRecords) -> Positions:
    """Where a table stands that shows this."""
    return {number: Position(end, view.starts[number]) for number, end in view.end.items()}


def _pairs(view: LastRecords, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """These columns of the records, as tuples."""
    for batch in view.only(columns).batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
