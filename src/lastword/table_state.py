"""What a table holds, and up to which offsets; in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Pairs = Iterable[tuple[bytes, bytes | None]]  # None deletes the key


class Position(NamedTuple):
    """How far a partition was read, and where it began then."""

    position: int
    log_start: int


Positions = Mapping[int, Position]


@dataclass(frozen=True)
class Change:
    """A key's value before and after; None where there is none."""

    key: bytes
    old: bytes | None
    new: bytes | None


Told = Callable[[Change], object]


class State(Protocol):
    """Keys and values, and the positions that they are true for."""

    positions: Positions

    def get(self, key: bytes) -> bytes | None: ...
    def keys(self) -> Iterator[bytes]: ...
    def to_dict(self) -> dict[bytes, bytes]: ...
    def __len__(self) -> int: ...
    def close(self) -> None: ...

    def change(self, pairs: Pairs, at: Positions, tell: Told | None = None) -> None:
        """Set and delete, all or nothing; `tell` is called of each change when it is done."""

    def replace(self, pairs: Pairs, at: Positions, tell: Told | None = None) -> None:
        """Hold these and nothing else; `tell` is called of what differs."""


class MemoryState:
    """A dict."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self.positions: Positions = {}

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def keys(self) -> Iterator[bytes]:
        return iter(list(self._values))

    def to_dict(self) -> dict[bytes, bytes]:
        return dict(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def close(self) -> None:
        return None

    def change(self, pairs: Pairs, at: Positions, tell: Told | None = None) -> None:
        new = dict(pairs)  # all is read before anything is changed
        olds = {key: self._values.get(key) for key in new} if tell else {}
        for key, value in new.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value
        self.positions = at
        if tell:
            tell_all(tell, [(key, olds[key], value) for key, value in new.items()])

    def replace(self, pairs: Pairs, at: Positions, tell: Told | None = None) -> None:
        old, new = self._values, {k: v for k, v in pairs if v is not None}
        self._values, self.positions = new, at
        if tell:
            tell_all(tell, [(key, old.get(key), new.get(key)) for key in {**old, **new}])


def tell_all(tell: Told, changes: Sequence[tuple[bytes, bytes | None, bytes | None]]) -> None:
    """Tell of each; an error of one does not keep it from the others, and is raised in the end."""
    first_error: Exception | None = None
    for key, old, new in changes:
        if old == new:
            continue
        try:
            tell(Change(key, old, new))
        except Exception as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error
