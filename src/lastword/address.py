"""A store's URL: a folder, or `postgresql://…`.

    ./store                                       SQLite and data in this folder
    file:///srv/store?data_root=s3://bucket/x     SQLite in this folder, data elsewhere
    postgresql://user@host/db                     catalog in Postgres, data root recorded there
        ?schema=lastword                          the database schema that holds the tables
        &data_root=s3://bucket/prefix             where the files go: needed once, to make the store

`data_root` is percent-encoded where it contains `&` itself. Only `shown` is ever printed.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from lastword.errors import NotAStoreError

DEFAULT_SCHEMA = "lastword"


@dataclass(frozen=True)
class Address:
    """Where a store is."""

    shown: str
    folder: str | None = None
    postgres: URL | None = field(default=None, repr=False)
    pg_schema: str = DEFAULT_SCHEMA
    data_root: str | None = field(default=None, repr=False)


def parse(url: str | os.PathLike[str]) -> Address:
    """The address that a store's URL gives."""
    text = os.fspath(url)
    scheme = text.partition("://")[0] if re.match(r"[a-z][a-z0-9+.-]*://", text, re.I) else ""
    if scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        return _postgres(text)
    if scheme not in ("", "file"):
        raise NotAStoreError(
            without_secrets(text), f"{scheme}:// is no store; give a folder or postgresql://…"
        )
    if not scheme and "?data_root=" in text:
        raise NotAStoreError(
            without_secrets(text), "options need a URL: file:///folder?data_root=…"
        )
    path, options = (text, {}) if not scheme else _file_url(text)
    if not path:
        raise NotAStoreError(repr(text), "names no folder")
    data_root = options.pop("data_root", None)
    if options:
        raise NotAStoreError(path, f"unknown option {sorted(options)[0]!r}; known: data_root")
    return Address(shown=path, folder=os.path.abspath(path), data_root=data_root)


def without_secrets(url: str) -> str:
    """The URL without user and password, and without options that could be a secret."""
    place, question, query = url.partition("?")
    scheme, separator, rest = place.partition("://")
    if _has_unquoted_secret(url):
        place = scheme + separator + rest.rpartition("@")[2]
    elif separator:
        authority, slash, path = rest.partition("/")
        place = scheme + separator + authority.rpartition("@")[2] + slash + path
    return place + question + "&".join(_shown_option(option) for option in query.split("&"))


def _shown_option(option: str) -> str:
    key, equals, value = option.partition("=")
    if re.search("password|secret|token|key", key, re.I):
        return f"{key}=…"
    return key + equals + (without_secrets(unquote(value)) if "://" in unquote(value) else value)


def checked_data_root(url: str, shown: str, *, is_relative_fine: bool) -> str:
    """The data root, if it says one place, wherever it is read."""
    if _has_unquoted_secret(url):
        raise NotAStoreError(shown, "in its data root, write a / in user or password as %2F")
    if "://" not in url and not os.path.isabs(url) and not is_relative_fine:
        raise NotAStoreError(shown, f"its data root {url!r} must be an absolute path or a URL")
    return url


def _has_unquoted_secret(url: str) -> bool:
    """Whether a slash in a password makes it look like a host and a path."""
    rest = url.partition("?")[0].partition("://")[2]
    authority, _, path = rest.partition("/")
    return ":" in authority and "@" not in authority and "@" in path


def _file_url(text: str) -> tuple[str, dict[str, str]]:
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise NotAStoreError(text, f"names the host {parts.netloc!r}; write file:///path")
    options = (part.partition("=")[::2] for part in parts.query.split("&") if part)
    return unquote(parts.path), {key: unquote(value) for key, value in options}


def _postgres(text: str) -> Address:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise NotAStoreError(without_secrets(text), "is not a valid postgresql:// URL") from None
    query = dict(url.query)
    pg_schema = str(query.pop("schema", DEFAULT_SCHEMA))
    data_root = query.pop("data_root", None)
    url = url.set(query=query)
    shown = without_secrets(url.set(username=None, password=None).render_as_string())
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", pg_schema):
        raise NotAStoreError(shown, f"schema {pg_schema!r} must be of a-z, 0-9 and _")
    if pg_schema != DEFAULT_SCHEMA:
        shown += f"{'&' if '?' in shown else '?'}schema={pg_schema}"
    return Address(
        shown=shown,
        postgres=url,
        pg_schema=pg_schema,
        data_root=str(data_root) if data_root else None,
    )
