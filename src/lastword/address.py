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

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.I)
_USER_IS_A_PLACE = ("abfs", "abfss", "hdfs")  # container@account, whose files


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
    scheme = text.partition("://")[0] if _SCHEME.match(text) else ""
    if scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        return _postgres(text)
    if scheme not in ("", "file"):
        raise NotAStoreError(
            without_secrets(text), f"{scheme}:// is no store; give a folder or postgresql://…"
        )
    if "\0" in text or (not scheme and re.search(r"[?&]data_root=", text)):
        raise NotAStoreError(
            without_secrets(text), "is no folder; options need a URL: file:///folder?data_root=…"
        )
    path, options = (text, {}) if not scheme else _file_url(text)
    if not path:
        raise NotAStoreError(repr(text), "names no folder")
    data_root = options.pop("data_root", None)
    if options:
        raise NotAStoreError(path, f"unknown option {sorted(options)[0]!r}; known: data_root")
    return Address(shown=path, folder=os.path.abspath(path), data_root=data_root)


def without_secrets(url: str) -> str:
    """The URL, to be shown: without user, password, and options that could be a secret.

    Where it is not clear what is a password, rather too little is shown than too much.
    """
    scheme = _SCHEME.match(url)
    start = scheme.end() if scheme else 0
    nested = re.search(r"[?&]data_root=", url)
    end = nested.start() if nested else len(url)
    rest = url[start:end]
    authority = re.split("[/?]", rest, maxsplit=1)[0]
    if scheme and ":" in authority and "@" in rest:
        rest = rest.rpartition("@")[2]
    elif scheme and "@" in authority:
        rest = rest.partition("@")[2]
    place, mark, options = rest.partition("?")
    return (
        url[:start] + place + mark + _shown(options) + url[end : end + 1] + _shown(url[end + 1 :])
    )


def redacted(text: str) -> str:
    """A message of somebody else's, without the secrets of URLs in it."""
    return re.sub(_SCHEME.pattern + r"\S+", lambda url: without_secrets(url[0]), text, flags=re.I)


def without_password(url: str) -> str:
    """The URL, to be recorded: the same place, less the credentials."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    keeps_user = scheme in _USER_IS_A_PLACE and user
    place = user.partition(":")[0] + at + host if keeps_user else host
    return scheme + separator + place + slash + path if separator else url


def checked_data_root(url: str, address: Address) -> str:
    """The data root, if it says one place, wherever it is read."""
    rest = url.partition("://")[2]
    authority = re.split("[/?]", rest, maxsplit=1)[0]
    if ":" in authority and "@" in rest[len(authority) :]:
        raise NotAStoreError(
            address.shown,
            "in its data root, write / ? @ as %2F %3F %40 where they are no separators",
        )
    if "://" in url:
        return url
    if not os.path.isabs(url) and not address.folder:
        raise NotAStoreError(
            address.shown, f"its data root {url!r} must be an absolute path or a URL"
        )
    if address.folder and os.path.abspath(os.path.join(address.folder, url)) == address.folder:
        raise NotAStoreError(address.shown, "its data root must not be the folder of its catalog")
    return url


def _shown(options: str) -> str:
    return "&".join(_shown_option(option) for option in options.split("&"))


def _shown_option(option: str) -> str:
    key, equals, value = option.partition("=")
    if re.search("pass|pwd|secret|token|key|sig|cred|sas", key, re.I):
        return f"{key}=…"
    return key + equals + (without_secrets(unquote(value)) if "://" in unquote(value) else value)


def _file_url(text: str) -> tuple[str, dict[str, str]]:
    try:
        parts = urlsplit(text)
    except ValueError:
        raise NotAStoreError(without_secrets(text), "is no URL; write file:///path") from None
    if parts.netloc not in ("", "localhost"):
        raise NotAStoreError(without_secrets(text), "names a host; write file:///path")
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
