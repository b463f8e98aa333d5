"""Erasing keys: gone from the log, from retired files and from the disk, with a true receipt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lastword.catalog import claims, cleaning
from lastword.errors import ConflictError, InvalidArgumentError, PolicyViolationError
from lastword.jobs.runner import Failure, Outcome, R, U
from lastword.model import Record
from lastword.store import Store
from lastword.testing import InProcess, ManualClock
from lastword.topic import Topic
from tests.notation import clean, shown, write

SECRET = b"4 Privet Dr, the cupboard under the stairs"


def on_disk(store: Store, what: bytes) -> bool:
    """Whether any file of the store still holds these bytes."""
    folder = Path(store.base.root.full(""))
    return any(what in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def plain(store: Store, partitions: int = 1, **config: object) -> Topic:
    """A topic that is not compressed, so that bytes can be looked for."""
    named = {key.replace("_", "."): value for key, value in config.items()}
    settings = {"compression.type": "uncompressed", **named}
    return store.create_topic("users", partitions, settings)


def test_no_byte_is_left(local: Store) -> None:
    topic = plain(local, 3, min_compaction_lag_ms=10**9)
    for i in range(3):
        topic.append([("harry", SECRET + b"%d" % i), *((f"k{n}", "x") for n in range(20))])
        topic.roll()
        clean(topic)  # of which the lag makes nothing
    topic.append([("harry", SECRET), ("ron", SECRET)])
    assert on_disk(local, SECRET)
    receipt = topic.erase(["harry", "ron", "nobody"], runner=InProcess())
    assert not on_disk(local, SECRET)
    assert (receipt.keys, receipt.found, receipt.records, receipt.tombstones) == (3, 2, 5, 2)
    assert receipt.not_found == ("nobody",)
    assert receipt.files_rewritten > 0
    assert receipt.files_deleted > 0
    assert receipt.bytes_deleted > 0
    assert len(receipt.passes) == len({topic.get(k).partition for k in ("harry", "ron")})
    assert len(topic.latest().to_dict()) == 20
    assert local.check().is_clean


def test_retired_files_are_deleted_too(local: Store) -> None:
    """Those that passes before have left for their readers, and those of a topic of that name."""
    for turn in range(2):
        topic = plain(local)
        topic.append([("harry", SECRET)])
        topic.append([("harry", "4 Grimmauld Place")])
        clean(topic)
        if turn == 0:
            topic.delete()
    assert on_disk(local, SECRET)
    topic.erase(["harry"], runner=InProcess())
    assert not on_disk(local, SECRET)
    assert not on_disk(local, b"Grimmauld")


def test_a_dry_run_changes_nothing(local: Store) -> None:
    topic = plain(local)
    write(topic, "a=1 b=1 | a=2*")
    before = shown(topic, offsets=True)
    receipt = topic.erase(["a"], dry_run=True, runner=InProcess())
    assert receipt.is_dry_run
    assert (receipt.found, receipt.records, receipt.tombstones) == (1, 2, 1)
    assert (receipt.files_rewritten, receipt.files_deleted) == (2, 0)
    assert shown(topic, offsets=True) == before


def test_it_can_be_done_again(local: Store) -> None:
    topic = plain(local)
    write(topic, "a=1 b=1*")
    topic.erase(["a"], runner=InProcess())
    again = topic.erase(["a"], runner=InProcess())
    assert (again.found, again.tombstones, again.passes, again.files_deleted) == (0, 0, (), 0)
    assert shown(topic, offsets=True) == "1:b=1 2:a=∅"


def test_a_key_that_was_deleted_but_not_cleaned(local: Store) -> None:
    topic = plain(local)
    write(topic, f"a={SECRET.decode().replace(' ', '')} b=1 | a=∅*")
    receipt = topic.erase(["a"], runner=InProcess())
    assert (receipt.found, receipt.tombstones) == (1, 0)
    assert not on_disk(local, SECRET.replace(b" ", b""))


def test_keys_in_several_partitions(local: Store) -> None:
    topic = plain(local, 3)
    for number in range(3):
        topic.append([Record("a", SECRET, partition=number)])
    receipt = topic.erase(["a"], runner=InProcess())
    assert receipt.tombstones == 3
    assert not on_disk(local, SECRET)
    assert topic.get("a").value is None


def test_what_may_remain(local: Store, clock: ManualClock) -> None:
    topic = plain(local, delete_retention_ms=1000)
    write(topic, "a=1*")
    with local.consumer("billing", ["users"]) as consumer:
        consumer.poll()
        consumer.commit()
    stray = local.base.root.new_path("users", 0, clock())
    with local.base.root.create(stray) as file:
        file.write(b"staged by someone")
    receipt = topic.erase(["a"], runner=InProcess())
    text = "\n".join(receipt.may_remain)
    assert "tombstones, which hold the keys themselves for 1.0 s after their first pass" in text
    assert f"1 file(s) that no commit took, such as {stray}" in text
    assert "billing" in text
    assert "backups" in text


def test_what_cannot_be_erased(local: Store) -> None:
    topic = local.create_topic("log", config={"cleanup.policy": "delete"})
    with pytest.raises(PolicyViolationError, match="only topics with 'compact'"):
        topic.erase(["a"], runner=InProcess())
    with pytest.raises(InvalidArgumentError, match="name the keys"):
        local.create_topic("t").erase([], runner=InProcess())
    with pytest.raises(InvalidArgumentError, match="a list of keys, not 'ab'"):
        local.topic("t").erase("ab", runner=InProcess())


def test_what_lies_below_log_start_goes_too(local: Store) -> None:
    topic = plain(local, cleanup_policy="compact,delete")
    topic.append([("harry", SECRET), ("ron", "x"), ("ginny", "y")])
    topic.delete_records(0, 1)
    assert on_disk(local, SECRET)
    receipt = topic.erase(["harry"], runner=InProcess())
    assert receipt.records == 1
    assert not on_disk(local, SECRET)
    assert sorted(topic.latest().keys()) == [b"ginny", b"ron"]


class Broken(InProcess):
    """A runner whose jobs fail."""

    def run(self, step: str, work: Callable[[U], R], units: Sequence[U]) -> Outcome[R]:
        return Outcome(tuple(Failure("no more disks") for _ in units))


def test_a_pass_that_fails(local: Store) -> None:
    topic = plain(local)
    write(topic, "a=1 b=1*")
    with pytest.raises(ConflictError, match="no more disks. The keys are deleted, but the bytes"):
        topic.erase(["a"], runner=Broken())
    assert topic.get("a").value is None
    receipt = topic.erase(["a"], runner=InProcess())
    assert (receipt.found, receipt.tombstones) == (1, 0)


def test_another_cleaner_at_work(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Erasing waits until it is done."""
    topic = plain(local)
    write(topic, "a=1 b=1*")
    catalog, clock = local.base.catalog, local.base.clock
    (state,) = cleaning.states(catalog, [topic.row], 0)
    assert claims.claim(catalog, state, "another", clock)
    waited = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            claims.release(catalog, "another")

    monkeypatch.setattr("lastword.erase.sleep", wait)  # not that of other threads
    assert topic.erase(["a"], runner=InProcess()).found == 1
    assert len(waited) == 3


def test_written_again_meanwhile(local: Store) -> None:
    """What is written after the tombstone is another's business."""
    topic = plain(local)
    write(topic, "a=1 b=1*")

    class Meanwhile(InProcess):
        def run(self, step: str, work: Callable[[U], R], units: Sequence[U]) -> Outcome[R]:
            if step == "mark":
                topic.append([("a", "new")])
            return super().run(step, work, units)

    topic.erase(["a"], runner=Meanwhile())
    assert topic.get("a").value == b"new"


def test_a_receipt_is_only_given_for_what_is_gone(
    local: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = plain(local)
    write(topic, "a=1 b=1*")
    monkeypatch.setattr("lastword.erase._clean", lambda *_: [])
    with pytest.raises(ConflictError, match=r"1 value\(s\) are still there, the first at 0:0"):
        topic.erase(["a"], runner=InProcess())
