"""A store: a catalog, a data root and a clock; the door to its topics."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lastword import address as addresses
from lastword import check, garbage, retention
from lastword.address import Address, without_secrets
from lastword.catalog import queries, topics
from lastword.catalog.engine import Catalog, Identity, open_postgres, open_sqlite
from lastword.catalog.writers import forget_sessions
from lastword.check import Progress, Report
from lastword.clock import Clock, system_clock
from lastword.config import Setting
from lastword.errors import NotAStoreError, TopicExistsError
from lastword.files.root import OWNER_NOTE, DataRoot, make_durable_folder, translated
from lastword.foundation import Foundation
from lastword.garbage import GarbageFile
from lastword.producer import Producer
from lastword.retention import Expire
from lastword.topic import Topic, TopicSummary

CATALOG_FILE = "catalog.db"
_DATA_FOLDER = "data"


class Store:
    """An open store. Made by `lastword.open`; safe to use from several threads."""

    def __init__(self, shown: str, base: Foundation) -> None:
        self.url, self.base = shown, base

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the catalog's connections."""
        self.base.catalog.close()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        if_not_exists: bool = False,
    ) -> Topic:
        """A new topic; settings have Kafka's names.

        With `if_not_exists`, a topic of that name that is there already is returned as it is.
        """
        now_ms = self.base.clock()
        try:
            row = topics.create_topic(self.base.catalog, name, partitions, config or {}, now_ms)
        except TopicExistsError:
            if not if_not_exists:
                raise
            return self.topic(name)
        return Topic(self.base, row)

    def topic(self, name: str) -> Topic:
        """The topic of that name; UnknownTopicError if there is none."""
        return Topic(self.base, queries.topic_named(self.base.catalog, name))

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return [topic.name for topic in queries.topics(self.base.catalog)]

    def summaries(self) -> list[TopicSummary]:
        """All topics with their sizes, sorted by name."""
        sizes = queries.sizes(self.base.catalog)
        return [
            TopicSummary(
                t.name,
                t.partitions,
                *sizes.get(t.id, (0, 0)),
                ",".join(sorted(t.config.cleanup_policy)),
            )
            for t in queries.topics(self.base.catalog)
        ]

    def settings(self) -> list[Setting]:
        """The store's own settings: the cleaner's, and the defaults for its topics."""
        return topics.describe_store(self.base.catalog)

    def alter(self, changes: Mapping[str, object]) -> None:
        """Set settings of the store; None as value goes back to the default."""
        topics.alter_store(self.base.catalog, changes, self.base.clock())

    def producer(self, *, batch_bytes: int = 16 << 20, linger_ms: int = 1_000) -> Producer:
        """A producer for any topics of this store; use it as a context manager."""
        return Producer(self.base, batch_bytes=batch_bytes, linger_ms=linger_ms)

    def expire(self, *names: str, dry_run: bool = False) -> list[Expire]:
        """Run retention on these topics, or on all; what was dropped, or would be."""
        rows = (
            [queries.topic_named(self.base.catalog, name) for name in names]
            if names
            else queries.topics(self.base.catalog)
        )
        return retention.expire(self.base.catalog, rows, self.base.clock(), dry_run=dry_run)

    def gc(
        self, *, orphan_age_ms: int = garbage.ORPHAN_AGE_MS, dry_run: bool = False
    ) -> list[GarbageFile]:
        """Delete retired files whose grace is over, and orphans; what was deleted, or would be."""
        now_ms = self.base.clock()
        if dry_run:
            return garbage.find(self.base.catalog, self.base.root, now_ms, orphan_age_ms)
        expiration_ms = topics.store_settings(self.base.catalog).producer_id_expiration_ms
        forget_sessions(self.base.catalog, before_ms=now_ms - expiration_ms)
        return garbage.collect(self.base.catalog, self.base.root, now_ms, orphan_age_ms)

    def check(
        self,
        *,
        quick: bool = False,
        orphan_age_ms: int = garbage.ORPHAN_AGE_MS,
        progress: Progress = lambda _: None,
    ) -> Report:
        """Compare catalog and files; `quick` does not read the records."""
        return check.check(
            self.base.catalog,
            self.base.root,
            self.base.clock(),
            quick=quick,
            progress=progress,
            orphan_age_ms=orphan_age_ms,
        )


def open_store(
    url: str | os.PathLike[str] | None = None,
    *,
    clock: Clock = system_clock,
    create: bool = True,
) -> Store:
    """Open the store at this URL, else at `LASTWORD_STORE`; make it if it is not there.

    With `create=False`, an address where no store is raises NotAStoreError.
    """
    if url is None:
        url = os.environ.get("LASTWORD_STORE", "")
        if not url:
            raise NotAStoreError("no store", "give its URL (--store), or set LASTWORD_STORE")
    address = addresses.parse(url)
    catalog = _folder_catalog(address, create) if address.folder else _postgres_catalog(address)
    try:
        identity = catalog.identity()
        if identity is None:
            if not create:
                raise NotAStoreError(address.shown, "no store is there")
            identity = _make_store(address, catalog, clock())
        root = DataRoot(_usable_root(address, identity.data_root), folder=address.folder or "")
        _refuse_others_files(address, root, identity)
        return Store(address.shown, Foundation(catalog, root, clock))
    except BaseException:
        catalog.close()
        raise


def _folder_catalog(address: Address, create: bool) -> Catalog:
    folder = address.folder or ""
    path = os.path.join(folder, CATALOG_FILE)
    if not os.path.exists(path):
        _refuse_strange_folder(address, create)
        with translated(folder):
            make_durable_folder(folder)
    return open_sqlite(path, address.shown)


def _refuse_strange_folder(address: Address, create: bool) -> None:
    folder = address.folder or ""
    if not os.path.exists(folder):
        if not create:
            raise NotAStoreError(address.shown, "no store is there")
        return
    if not os.path.isdir(folder):
        raise NotAStoreError(address.shown, "is a file; a store is a folder or postgresql://…")
    with translated(folder):
        strangers = [name for name in os.listdir(folder) if not name.startswith(CATALOG_FILE)]
    if os.path.exists(os.path.join(folder, _DATA_FOLDER, OWNER_NOTE)):
        raise NotAStoreError(
            address.shown, f"its {CATALOG_FILE} is gone; restore it from a copy, the data is there"
        )
    if strangers or not create:
        holds = f"it holds {sorted(strangers)[0]!r} and " if strangers else "it is empty: "
        raise NotAStoreError(
            address.shown,
            f"is not a store: {holds}no {CATALOG_FILE}; give a folder that is empty or new",
        )


def _postgres_catalog(address: Address) -> Catalog:
    assert address.postgres is not None
    return open_postgres(address.postgres, address.pg_schema, address.shown)


def _make_store(address: Address, catalog: Catalog, now_ms: int) -> Identity:
    """A new catalog, once its data root has turned out to be usable and nobody else's.

    What it records has no credentials, and is relative to the folder if it lies inside.
    """
    if not address.data_root and not address.folder:
        raise NotAStoreError(
            address.shown,
            "no store is there yet; to make one, add ?data_root= with the folder or URL for its files",
        )
    data_root = address.data_root or _DATA_FOLDER
    is_relative_fine = bool(address.folder)
    addresses.checked_data_root(data_root, address.shown, is_relative_fine=is_relative_fine)
    root = DataRoot(data_root, folder=address.folder or "")

    def claim(store_id: str) -> None:
        if root.owner() is not None:
            raise _others_files(address, root)
        root.claim(store_id)

    catalog.create_schema(without_secrets(data_root), now_ms, claim)
    made = catalog.identity()
    assert made is not None
    return made


def _refuse_others_files(address: Address, root: DataRoot, identity: Identity) -> None:
    """Make sure that no other store's gc takes our files for orphans, nor ours theirs."""
    owner = root.owner()
    if owner is None:
        root.claim(identity.store_id)
    elif owner != identity.store_id:
        raise _others_files(address, root)


def _others_files(address: Address, root: DataRoot) -> NotAStoreError:
    return NotAStoreError(
        address.shown,
        f"{root.shown} holds the files of another store; "
        f"if that one is gone, delete {root.full(OWNER_NOTE)}",
    )


def _usable_root(address: Address, recorded: str) -> str:
    """The data root to use: the recorded one, with the credentials of the address if it has any."""
    if address.data_root is None:
        return recorded
    if without_secrets(address.data_root) != recorded:
        raise NotAStoreError(
            address.shown,
            f"its data root is {recorded}, not {without_secrets(address.data_root)}; leave it out",
        )
    return address.data_root
