"""The changes of a database table, through a compacted topic, into a search index: SQLite's FTS5.

The index keeps its position in the transaction that changes its documents: whenever the process
dies, the two agree. It prints:

3 captured, 3 indexed: 'road' is in articles 1 and 2
4 captured, 2 indexed: 'road' is in articles 1 and 3
0 captured, 0 indexed: 'road' is in articles 1 and 3
1 captured, and then the index is away until the tombstone has gone
0 captured, 1 indexed anew: 'road' is in articles 3
"""

import sqlite3
import tempfile
from pathlib import Path

import lastword
from lastword.testing import InProcess, ManualClock

folder, clock = Path(tempfile.mkdtemp()), ManualClock()
store = lastword.open(folder / "store", clock=clock)
articles = store.create_topic("articles", partitions=2)

# The database: triggers note every change, as capture tools read it from a database's own log.
database = sqlite3.connect(folder / "database.db")
database.executescript(
    """
    CREATE TABLE article (id INTEGER PRIMARY KEY, text TEXT);
    CREATE TABLE change (number INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER, text TEXT);
    CREATE TRIGGER i AFTER INSERT ON article BEGIN INSERT INTO change (id, text) VALUES (new.id, new.text); END;
    CREATE TRIGGER u AFTER UPDATE ON article BEGIN INSERT INTO change (id, text) VALUES (new.id, new.text); END;
    CREATE TRIGGER d AFTER DELETE ON article BEGIN INSERT INTO change (id, text) VALUES (old.id, NULL); END;
    """
)

# The search index: documents, and up to which offset of each partition it has taken the topic in.
index = sqlite3.connect(folder / "index.db")
index.executescript(
    """
    CREATE VIRTUAL TABLE document USING fts5 (text);
    CREATE TABLE position (partition INTEGER PRIMARY KEY, offset INTEGER);
    """
)


def change(*statements: str) -> int:
    """Change the database, and append what its triggers have noted; a deletion is a tombstone."""
    with database:
        for statement in statements:
            database.execute(statement)
    noted = database.execute("SELECT number, id, text FROM change ORDER BY number").fetchall()
    articles.append([(str(id_), text) for _, id_, text in noted])
    # If we die here, they are appended once more: in order, so the last word on each key is the same.
    with database:
        database.executemany("DELETE FROM change WHERE number = ?", [row[:1] for row in noted])
    return len(noted)


def follow() -> str:
    """Bring the index up to date with the topic, in one transaction."""
    since = dict(index.execute("SELECT partition, offset FROM position"))
    changes = articles.changes(since, or_full=True)
    records = list(changes)
    with index:
        if changes.is_full:  # deletions are no longer known: what is not in it is deleted
            index.execute("DELETE FROM document")
        for record in records:
            index.execute("DELETE FROM document WHERE rowid = ?", [int(record.key)])
            if not record.is_tombstone:
                row = (int(record.key), record.value.decode())
                index.execute("INSERT INTO document (rowid, text) VALUES (?, ?)", row)
        index.executemany("REPLACE INTO position VALUES (?, ?)", changes.end.items())
    return f"{len(records)} indexed{' anew' if changes.is_full else ''}"


def search(word: str) -> str:
    found = index.execute("SELECT rowid FROM document WHERE text MATCH ? ORDER BY rowid", [word])
    return f"{word!r} is in articles {' and '.join(str(row[0]) for row in found)}"


texts = "(1, 'Paper Road 21'), (2, 'Milkman Road'), (3, 'Baker Street')"
count = change(f"INSERT INTO article VALUES {texts}")
print(f"{count} captured, {follow()}: {search('road')}")

count = change(
    "UPDATE article SET text = 'Elm Street' WHERE id = 3",
    "UPDATE article SET text = 'Elm Road' WHERE id = 3",
    "UPDATE article SET text = 'Milkman Lane' WHERE id = 2",
    "DELETE FROM article WHERE id = 2",
)  # four changes of two keys: one record for each
print(f"{count} captured, {follow()}: {search('road')}")
print(f"{change()} captured, {follow()}: {search('road')}")

# The index is away; the cleaner covers the tombstone, and a day later it removes it.
print(f"{change('DELETE FROM article WHERE id = 1')} captured, and then the index is away ", end="")
for wait_ms in (0, 86_400_000):
    clock.advance(wait_ms)
    store.clean("articles", force=True, runner=InProcess())  # leave the runner out to use Spark
print("until the tombstone has gone")
print(f"{change()} captured, {follow()}: {search('road')}")
