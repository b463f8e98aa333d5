"""The data root: where the files of a store lie, on any file system that pyarrow knows.

A file's path, below the root, is `<topic>/<partition>/<created ms>-<random>.parquet`. Names are
never reused, so a file is written in place: until a commit takes it, nobody looks at it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from lastword.address import redacted, without_secrets
from lastword.errors import StorageError

_NAME = re.compile(r"(?P<topic>[^/]+)/(?P<partition>\d+)/(?P<created_ms>\d+)-[0-9a-f]{16}\.parquet")

OWNER_NOTE = "lastword-store"  # holds the id of the store that the files belong to


@dataclass(frozen=True)
class StoredFile:
    """A file found below the root. `created_ms` is None if its name is not one of ours."""

    path: str
    bytes: int
    created_ms: int | None


class DataRoot:
    """A folder or bucket. Can be pickled and sent to executors."""

    def __init__(self, url: str, folder: str = "") -> None:
        """`url` may be relative to `folder`, the one that holds the catalog."""
        self.shown = without_secrets(url) if "://" in url else os.path.join(folder, url)
        if "://" in url:
            self._fs, self._base = _file_system(url)
        else:
            self._fs, self._base = fs.LocalFileSystem(), self.shown
        self.is_local = isinstance(self._fs, fs.LocalFileSystem)

    def __repr__(self) -> str:
        return f"DataRoot({self.shown!r})"

    def owner(self) -> str | None:
        """The id of the store whose files these are; None if nobody has claimed the root."""
        with translated(self.shown, missing_is_an_error=False):
            try:
                return bytes(self.open(OWNER_NOTE).read()).decode(errors="replace").strip()
            except FileNotFoundError:
                return None

    def claim(self, store_id: str) -> bool:
        """Leave a note that these files belong to this store; False if there is one already."""
        if self.owner() is not None:
            return False
        if self.is_local:  # where only one can win
            with translated(self.shown):
                make_durable_folder(self._base)
                try:
                    open(self.full(OWNER_NOTE), "x").close()
                except FileExistsError:
                    return False
        with self.create(OWNER_NOTE) as note:
            note.write(f"{store_id}\n".encode())
        return True

    def full(self, path: str) -> str:
        """The path as the file system knows it."""
        return f"{self._base}/{path}"

    def folder(self, topic: str, partition: int) -> str:
        """Where the files of a partition lie."""
        return f"{topic}/{partition}/"

    def new_path(self, topic: str, partition: int, now_ms: int) -> str:
        return f"{self.folder(topic, partition)}{now_ms:013d}-{secrets.token_hex(8)}.parquet"

    @contextmanager
    def create(self, path: str) -> Iterator[pa.NativeFile]:
        """A stream to a new file that is durable, its folder included, when the block ends."""
        full = self.full(path)
        with translated(full):
            if self.is_local:
                make_durable_folder(os.path.dirname(full))
            with self._fs.open_output_stream(full) as sink:
                yield sink
            if self.is_local:
                sync(full)
                sync(os.path.dirname(full))

    def open(self, path: str) -> pa.NativeFile:
        """The file, for reading. FileNotFoundError if it is not there."""
        with translated(self.full(path), missing_is_an_error=False):
            return self._fs.open_input_file(self.full(path))

    def size(self, path: str) -> int | None:
        """The file's bytes, or None if it is not there."""
        with translated(self.full(path)):
            found = self._fs.get_file_info(self.full(path))
        return found.size if found.type == fs.FileType.File else None

    def delete(self, paths: Sequence[str]) -> None:
        """Delete these files; those that are gone already do not matter."""
        for path in paths:
            with translated(self.full(path), missing_is_an_error=False):
                try:
                    self._fs.delete_file(self.full(path))
                except FileNotFoundError:
                    continue
                except OSError:  # S3 has no word of its own for "not there"
                    if self.size(path) is not None:
                        raise

    def files(self) -> Iterator[StoredFile]:
        """Every file below the root."""
        selector = fs.FileSelector(self._base, allow_not_found=True, recursive=True)
        with translated(self.shown):
            infos = _persistently(lambda: self._fs.get_file_info(selector))
        for info in infos:
            if info.type == fs.FileType.File:
                path = info.path[len(self._base) :].lstrip("/")
                if path == OWNER_NOTE:
                    continue
                name = _NAME.fullmatch(path)
                yield StoredFile(path, info.size, int(name["created_ms"]) if name else None)


def _persistently(listing: Callable[[], list[fs.FileInfo]]) -> list[fs.FileInfo]:
    """List again when a file was deleted in the middle of it."""
    for _ in range(9):
        with suppress(FileNotFoundError):
            return listing()
    return listing()


def _file_system(url: str) -> tuple[fs.FileSystem, str]:
    try:
        system, base = fs.FileSystem.from_uri(url)
        return system, str(base)
    except (pa.ArrowException, OSError):  # whose text may quote the credentials
        shown = without_secrets(url)
        raise StorageError(shown, "is no URL of a file system that pyarrow knows") from None


@contextmanager
def translated(path: str, *, missing_is_an_error: bool = True) -> Iterator[None]:
    """Errors of the file system, in our words."""
    try:
        yield
    except FileNotFoundError:
        if not missing_is_an_error:
            raise
        raise StorageError(path, "not found") from None
    except (FileExistsError, NotADirectoryError) as error:
        raise StorageError(path, f"{error.filename or 'a part of it'} is not a folder") from error
    except PermissionError as error:
        raise StorageError(path, "no permission; check who owns it") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(path, "no space left; free some and try again") from error
        raise StorageError(path, redacted(str(error))) from error


def make_durable_folder(folder: str) -> None:
    """Make the folder and those above it; each new name is synced into its parent."""
    parent = os.path.dirname(folder)
    if os.path.isdir(folder) or parent == folder:
        return
    make_durable_folder(parent)
    os.makedirs(folder, exist_ok=True)
    sync(parent)


def sync(path: str) -> None:
    """Put what a file holds, or the names in a folder, on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
