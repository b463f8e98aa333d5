"""Opening a store: find its catalog and its data root, or make them; never over what is there.

A store is made in one transaction: the tables are created and its data root is claimed by a note
with the store's id, or neither. (A process that is killed between the two leaves the note; the error
that the next one gets says which file that is.) A root with another store's note is refused, for
each would take the other's files for orphans; so is a root without the note, for the files must be
elsewhere: a disk that is not mounted, a wrong bucket.
"""

from __future__ import annotations

import os

from lastword import address as addresses
from lastword.address import Address, without_secrets
from lastword.catalog.engine import Catalog, Identity, open_postgres, open_sqlite
from lastword.catalog.migrations import can_migrate, migrate
from lastword.clock import Clock, system_clock
from lastword.errors import CatalogVersionError, NotAStoreError
from lastword.files.root import OWNER_NOTE, DataRoot, make_durable_folder, translated
from lastword.foundation import Foundation
from lastword.store import Store

_NONE = "no store is there; 'lastword topics create' makes one, as lastword.open does"
_CATALOG_FILE = "catalog.db"
_DATA_FOLDER = "data"


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
            raise NotAStoreError(
                "no store",
                "give its URL (--store; in Spark the option store), or set LASTWORD_STORE",
            )
    address = addresses.parse(url)
    catalog = _folder_catalog(address, create) if address.folder else _postgres_catalog(address)
    try:
        identity = _identity(catalog)
        if identity is None:
            if not create:
                raise NotAStoreError(address.shown, _NONE)
            identity = _make_store(address, catalog, clock())
        root = DataRoot(_usable_root(address, identity.data_root), folder=address.folder or "")
        _refuse_others_files(address, root, identity)
        return Store(address.folder or address.shown, Foundation(catalog, root, clock))
    except BaseException:
        catalog.close()
        raise


def _identity(catalog: Catalog) -> Identity | None:
    """Which store it is, in a catalog that is up to date; None if there is none."""
    try:
        return catalog.identity()
    except CatalogVersionError as error:
        if not can_migrate(error.found):
            raise
        migrate(catalog)
        return catalog.identity()


def _folder_catalog(address: Address, create: bool) -> Catalog:
    folder = address.folder or ""
    path = os.path.join(folder, _CATALOG_FILE)
    if not os.path.exists(path):
        _refuse_strange_folder(address, create)
        with translated(folder):
            make_durable_folder(folder)
    return open_sqlite(path, address.shown)


def _refuse_strange_folder(address: Address, create: bool) -> None:
    folder = address.folder or ""
    if not os.path.exists(folder):
        if not create:
            raise NotAStoreError(address.shown, _NONE)
        return
    if not os.path.isdir(folder):
        raise NotAStoreError(address.shown, "is a file; a store is a folder or postgresql://…")
    with translated(folder):
        strangers = [name for name in os.listdir(folder) if not name.startswith(_CATALOG_FILE)]
    if os.path.exists(os.path.join(folder, _CATALOG_FILE)):
        return  # another process has just made it
    if os.path.exists(os.path.join(folder, _DATA_FOLDER, OWNER_NOTE)):
        raise NotAStoreError(
            address.shown, f"its {_CATALOG_FILE} is gone; restore it from a copy, the data is there"
        )
    if strangers or not create:
        holds = f"it holds {sorted(strangers)[0]!r} and " if strangers else "it is empty: "
        raise NotAStoreError(
            address.shown,
            f"is not a store: {holds}no {_CATALOG_FILE}; give a folder that is empty or new",
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
    data_root = addresses.checked_data_root(address.data_root or _DATA_FOLDER, address)
    root = DataRoot(data_root, folder=address.folder or "")
    claimed = False

    def claim(store_id: str) -> None:
        nonlocal claimed
        claimed = root.claim(store_id)
        if not claimed:
            raise _others_files(address, root)

    try:
        catalog.create_schema(addresses.without_password(data_root), now_ms, claim)
    except BaseException:
        if claimed:
            root.delete([OWNER_NOTE])
        raise
    made = catalog.identity()
    assert made is not None
    return made


def _refuse_others_files(address: Address, root: DataRoot, identity: Identity) -> None:
    owner = root.owner()
    if owner is None:
        raise NotAStoreError(
            address.shown,
            f"its files are not at {root.shown}: is the disk mounted, the bucket right?",
        )
    if owner != identity.store_id:
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
    if addresses.without_password(address.data_root) != recorded:
        raise NotAStoreError(
            address.shown,
            f"its data root is {recorded}, not {without_secrets(address.data_root)}; leave it out",
        )
    return address.data_root
