"""The public door: what it gives, what it does not load, and what it never says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lastword
from lastword import errors
from lastword.errors import (
    CatalogError,
    ConflictError,
    LastwordError,
    NotAStoreError,
    StorageError,
)
from lastword.files.root import DataRoot
from lastword.store import Store
from lastword.testing import ManualClock


def test_all_is_what_is_public() -> None:
    public = {
        name
        for name, value in vars(lastword).items()
        if not name.startswith("_") and not isinstance(value, type(sys))
    }
    assert public | {"__version__"} == set(lastword.__all__)


def test_importing_it_loads_neither_spark_nor_a_web_framework() -> None:
    code = "import lastword, sys; print(sorted({'pyspark', 'fastapi', 'rich', 'typer'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_error_tree_is_the_one_that_is_drawn() -> None:
    drawn = [
        line.split("─")[-1].split()[0]
        for line in (errors.__doc__ or "").splitlines()
        if "── " in line
    ]
    real = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, LastwordError)
    ]
    assert ["LastwordError", *drawn] == real
    assert all(name.endswith("Error") for name in real)


def test_a_manual_clock_stands_still() -> None:
    clock = ManualClock(1_000)
    clock.advance(500)
    assert clock() == 1_500


def test_a_topic_can_be_asked_for_whether_it_is_there_or_not(local: Store) -> None:
    first = local.create_topic("t", partitions=2)
    assert local.create_topic("t", if_not_exists=True).id == first.id


@pytest.mark.parametrize("call", [
    lambda s: s.create_topic("z", partitions="2"),
    lambda s: s.create_topic(None),
    lambda s: s.topic(None),
    lambda s: s.create_topic("t").read(0, 0, limit=-1),
])  # fmt: skip
def test_wrong_types_are_our_errors(local: Store, call: Callable[[Store], object]) -> None:
    with pytest.raises(LastwordError):
        call(local)


class TestOpening:
    def test_the_environment_names_the_default(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LASTWORD_STORE", str(tmp_path / "s"))
        assert repr(lastword.open()) == f"Store('{tmp_path}/s')"
        monkeypatch.delenv("LASTWORD_STORE")
        with pytest.raises(NotAStoreError, match="or set LASTWORD_STORE"):
            lastword.open()

    def test_a_folder_of_others_is_not_made_a_store(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.txt").write_text("precious")
        with pytest.raises(NotAStoreError, match=r"it holds 'thesis.txt' and no catalog.db"):
            lastword.open(tmp_path)
        assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]
        with pytest.raises(NotAStoreError, match="is a file; a store is a folder"):
            lastword.open(tmp_path / "thesis.txt")

    def test_an_empty_folder_is_made_one_only_if_asked(self, tmp_path: Path) -> None:
        with pytest.raises(NotAStoreError, match="is not a store: it is empty"):
            lastword.open(tmp_path, create=False)
        lastword.open(tmp_path).close()

    def test_a_catalog_that_is_no_database(self, tmp_path: Path) -> None:
        (tmp_path / "catalog.db").write_bytes(b"not a database at all, not at all" * 100)
        with pytest.raises(CatalogError, match=r"is not a database; restore catalog\.db"):
            lastword.open(tmp_path)

    def test_a_catalog_that_was_lost_or_emptied(self, tmp_path: Path) -> None:
        """Its data must not be taken for orphans of a new store."""
        with lastword.open(tmp_path / "s") as store:
            store.create_topic("t").append([("a", "1")])
        (tmp_path / "s" / "catalog.db").write_bytes(b"")
        with pytest.raises(NotAStoreError, match="data holds the files of another store; if that"):
            lastword.open(tmp_path / "s")
        (tmp_path / "s" / "catalog.db").unlink()
        with pytest.raises(
            NotAStoreError, match=r"its catalog\.db is gone; restore it from a copy"
        ):
            lastword.open(tmp_path / "s")

    def test_an_empty_catalog(self, local: Store, tmp_path: Path) -> None:
        with local.base.catalog.write() as tx:
            tx.exec_driver_sql("DELETE FROM store")
        with pytest.raises(NotAStoreError, match="its catalog is empty"):
            lastword.open(tmp_path / "store")

    def test_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StorageError, match="file is not a folder"):
            lastword.open(tmp_path / "file" / "store")

    def test_a_store_can_be_moved(self, tmp_path: Path) -> None:
        with lastword.open(tmp_path / "here") as store:
            store.create_topic("t").append([("a", "1")])
        (tmp_path / "here").rename(tmp_path / "there")
        with lastword.open(tmp_path / "there", create=False) as store:
            assert [r.value for r in store.topic("t").read()] == [b"1"]

    def test_another_data_root_than_the_recorded_one(self, tmp_path: Path) -> None:
        lastword.open(f"file://{tmp_path}/s?data_root={tmp_path}/a").close()
        with pytest.raises(NotAStoreError, match=f"data root is {tmp_path}/a, not {tmp_path}/b"):
            lastword.open(f"file://{tmp_path}/s?data_root={tmp_path}/b")
        lastword.open(tmp_path / "s").close()

    def test_a_data_root_that_cannot_be_is_not_recorded(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="is no URL of a file system"):
            lastword.open(f"file://{tmp_path}/s?data_root=s4://k:HUSH@bucket/x")
        with lastword.open(f"file://{tmp_path}/s?data_root={tmp_path}/data") as store:
            store.create_topic("t").append([("a", "1")])

    def test_no_two_stores_share_a_data_root(self, tmp_path: Path) -> None:
        """Else the gc of one would take the files of the other for orphans."""
        lastword.open(f"file://{tmp_path}/one?data_root={tmp_path}/data").close()
        with pytest.raises(NotAStoreError, match="data holds the files of another store"):
            lastword.open(f"file://{tmp_path}/two?data_root={tmp_path}/data")
        lastword.open(f"file://{tmp_path}/two?data_root={tmp_path}/other").close()
        (tmp_path / "other" / "lastword-store").write_text("somebody else\n")
        with pytest.raises(NotAStoreError, match="other holds the files of another store"):
            lastword.open(tmp_path / "two")

    def test_a_data_root_that_is_gone_is_not_made_anew(self, tmp_path: Path) -> None:
        """An unmounted disk: what is appended must not go under the mount point."""
        url = f"file://{tmp_path}/s?data_root={tmp_path}/disk/data"
        with lastword.open(url) as store:
            store.create_topic("t").append([("a", "1")])
        (tmp_path / "disk").rename(tmp_path / "away")
        with pytest.raises(NotAStoreError, match="its files are not at .* is the disk mounted"):
            lastword.open(tmp_path / "s")
        assert not (tmp_path / "disk").exists()
        (tmp_path / "away").rename(tmp_path / "disk")
        lastword.open(tmp_path / "s").close()

    def test_only_one_of_two_can_claim_a_data_root(self, local: Store) -> None:
        root = local.base.root
        assert not root.claim("another")
        with pytest.MonkeyPatch.context() as late:  # it looked before the note was there
            late.setattr(DataRoot, "owner", lambda _: None)
            assert not root.claim("another")

    def test_gc_of_a_root_that_is_another_stores(self, local: Store, clock: ManualClock) -> None:
        local.create_topic("t").delete()
        note = Path(local.base.root.full("lastword-store"))
        note.write_bytes(b"\xff another")
        with pytest.raises(ConflictError, match="this store's; nothing was deleted"):
            local.gc(orphan_age_ms=0)

    def test_a_store_that_could_not_be_made_leaves_no_claim(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def claim_and_fail(_self: object, _root: str, _now: int, claim: Any) -> None:
            claim("nobody")
            raise CatalogError("here", "went away")

        with monkeypatch.context() as broken:
            broken.setattr("lastword.opening.Catalog.create_schema", claim_and_fail)
            with pytest.raises(CatalogError):
                lastword.open(tmp_path / "s")
        lastword.open(tmp_path / "s").close()

    def test_postgres_needs_an_absolute_data_root(self, postgres_url: str) -> None:
        joint = "&" if "?" in postgres_url else "?"
        with pytest.raises(NotAStoreError, match="must be an absolute path or a URL"):
            lastword.open(f"{postgres_url}{joint}schema=empty_two&data_root=data")

    def test_postgres_needs_to_know_where_the_data_goes(self, postgres_url: str) -> None:
        joint = "&" if "?" in postgres_url else "?"
        with pytest.raises(NotAStoreError, match=r"to make one, add \?data_root="):
            lastword.open(f"{postgres_url}{joint}schema=empty_one")


class TestSecrets:
    """Passwords and keys are in no repr, no error, no catalog."""

    def test_postgres(self) -> None:
        with pytest.raises(CatalogError) as error:
            lastword.open("postgresql://someone:HUSHHUSH@127.0.0.1:1/db?data_root=/tmp/x")
        assert "HUSHHUSH" not in str(error.value)
        assert "127.0.0.1" in str(error.value)

    def test_s3(self, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from tests.conftest import s3_store_url

        url = s3_store_url(s3_url, tmp_path / "s")
        with lastword.open(url) as store:
            store.create_topic("t").append([("a", "1")])
            shown = [repr(store), repr(store.base.root), repr(store.base.catalog), store.url]
            recorded = repr(store.base.catalog.identity())
        assert "SECRETKEY" in url
        assert "SECRETKEY" not in " ".join([*shown, recorded])
        assert b"SECRETKEY" not in (tmp_path / "s" / "catalog.db").read_bytes()
        # opened again by the folder alone: where is in the catalog, who is in the environment
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRETKEY")
        with lastword.open(tmp_path / "s") as store:
            assert [r.value for r in store.topic("t").read()] == [b"1"]

    def test_s3_by_the_environment_alone(
        self, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        endpoint = s3_url.partition("endpoint_override=")[2].partition("&")[0]
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{endpoint}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRETKEY")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        url = f"file://{tmp_path}/s?data_root=s3://bucket/environment-{tmp_path.name}"
        with lastword.open(url) as store:
            topic = store.create_topic("t")
            topic.append([("a", "1")])
            assert [r.value for r in topic.read()] == [b"1"]

    def test_a_bucket_that_is_not_there(self, s3_url: str, tmp_path: Path) -> None:
        from tests.conftest import s3_store_url

        url = s3_store_url(s3_url.replace("@bucket/", "@nosuchbucket/"), tmp_path / "s")
        with pytest.raises(StorageError, match="nosuchbucket") as error:
            lastword.open(url)
        assert "SECRETKEY" not in str(error.value)
        lastword.open(s3_store_url(s3_url, tmp_path / "s")).close()  # nothing was recorded
