"""lastword demo"""

from __future__ import annotations

import tempfile

from lastword.cli.live import job_progress, pass_line
from lastword.cli.render import show_line
from lastword.cli.topics import show_anatomy
from lastword.jobs.session import found_or_started
from lastword.opening import open_store
from lastword.topic import Topic

_ADDRESS_BOOK = [
    ("1001", "4 Privet Dr"),
    ("1002", "221B Baker Street"),
    ("1003", "Milkman Road"),
    ("1002", "21 Jump St"),
    ("1001", "Paper St"),
    ("1001", "Paper Road 21"),
]


def demo() -> None:
    """Make a store in a temporary folder, write an address book, and compact it on Spark."""
    with (
        tempfile.TemporaryDirectory(prefix="lastword-demo-") as folder,
        open_store(folder) as store,
    ):
        show_line("A store in a folder: SQLite for the catalog, Parquet for the records.")
        users = store.create_topic("users", partitions=1, config={"cleanup.policy": "compact"})
        users.append(_ADDRESS_BOOK)
        show_line("\nSix changes of three addresses were appended to the topic 'users':")
        _show_records(users)
        show_line("\nWhy is it not compacted?")
        show_line(str(users.why()))
        show_line("\nCompact it all the same, on Spark in local mode:")
        with job_progress():
            passes = store.clean("users", force=True, spark=found_or_started())
        for done in passes:
            show_line(pass_line(done))
        show_line("\nThe last word on each key is left, at the offset it always had:")
        _show_records(users)
        users.append([("1003", None)])
        show_line("\n1003 moved out: a tombstone. The log now:")
        show_anatomy(users.describe())
        files = [file.path for file in store.base.root.files()]
        show_line(f"\n{len(files)} Parquet files, which any tool can read (they go with the demo;")
        show_line("the one that was replaced stays for an hour, so that readers can finish):")
        for path in sorted(files):
            show_line(f"  {store.base.root.full(path)}")


def _show_records(topic: Topic) -> None:
    for record in topic.read(partition=0):
        show_line(f"  offset {record.offset}  {_text(record.key)} → {_text(record.value)}")


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
