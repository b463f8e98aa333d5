"""lastword demo"""

from __future__ import annotations

import tempfile

from lastword.cli.render import show_line
from lastword.cli.topics import show_anatomy
from lastword.opening import open_store

_ADDRESS_BOOK = [
    ("1001", "4 Privet Dr"),
    ("1002", "221B Baker Street"),
    ("1003", "Milkman Road"),
    ("1002", "21 Jump St"),
    ("1001", "Paper St"),
    ("1001", "Paper Road 21"),
]


def demo() -> None:
    """Make a store in a temporary folder, write an address book, and look at the log."""
    with (
        tempfile.TemporaryDirectory(prefix="lastword-demo-") as folder,
        open_store(folder) as store,
    ):
        show_line("A store in a folder: SQLite for the catalog, Parquet for the records.")
        users = store.create_topic("users", partitions=1, config={"cleanup.policy": "compact"})
        users.append(_ADDRESS_BOOK)
        show_line("\nSix changes of three addresses were appended to the topic 'users':")
        for record in users.read(partition=0):
            show_line(f"  offset {record.offset}  {_text(record.key)} → {_text(record.value)}")
        users.roll()
        users.append([("1003", None)])
        show_line("\nThe segment was rolled, and 1003 moved out: a tombstone. The log now:")
        show_anatomy(users.describe())
        files = [file.path for file in store.base.root.files()]
        show_line(f"\n{len(files)} Parquet files, which any tool can read (they go with the demo):")
        for path in sorted(files):
            show_line(f"  {store.base.root.full(path)}")


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
