"""A database's changes through a compacted topic into a replica, end to end on Spark. It prints:

3 batches of changes, 9 records in the log
after a pass: 3 records, 6 obsolete ones removed
latest: {'1': 'paid', '3': 'shipped'}
the replica has {'1': 'paid', '3': 'shipped'}, as the shop has: True
then 1 is deleted: the replica has {'3': 'shipped'}
"""

import json
import os
import sqlite3
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import lastword

folder = Path(tempfile.mkdtemp())
store_url = str(folder / "store")
store = lastword.open(store_url)
orders = store.create_topic("orders", partitions=2)
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # which has lastword
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

# The shop: a real database, whose triggers note every change, as capture tools read it from its log.
shop = sqlite3.connect(folder / "shop.db")
shop.executescript(
    """
    CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT);
    CREATE TABLE change (number INTEGER PRIMARY KEY, id INTEGER, state TEXT);
    CREATE TRIGGER i AFTER INSERT ON orders BEGIN INSERT INTO change (id, state) VALUES (new.id, new.state); END;
    CREATE TRIGGER u AFTER UPDATE ON orders BEGIN INSERT INTO change (id, state) VALUES (new.id, new.state); END;
    CREATE TRIGGER d AFTER DELETE ON orders BEGIN INSERT INTO change (id, state) VALUES (old.id, NULL); END;
    """
)
(folder / "changes").mkdir()
captured = [0]  # the numbers of the last changes in each file


def sell(*statements: str) -> None:
    """Change the shop, and put what was captured into a file of changes."""
    for statement in statements:
        shop.execute(statement)
    rows = shop.execute(
        "SELECT * FROM change WHERE number > ? ORDER BY number", captured[-1:]
    ).fetchall()
    captured.append(rows[-1][0])
    lines = [json.dumps({"id": str(id_), "state": state}) for _, id_, state in rows]
    file = folder / "changes" / f"{captured[-1]:06}.json"
    file.write_text("\n".join(lines))
    os.utime(file, (captured[-1], captured[-1]))  # Spark takes files in the order of their times


def capture() -> int:
    """Stream the files of changes into the topic; a deletion has no state, which is a tombstone."""
    changes = spark.readStream.schema("id string, state string").option("maxFilesPerTrigger", 1)
    query = (
        changes.json(str(folder / "changes"))
        .selectExpr("id AS key", "state AS value")
        .writeStream.format("lastword")
        .options(store=store_url, topic="orders", checkpointLocation=str(folder / "capture"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return len(query.recentProgress)


replica = sqlite3.connect(folder / "replica.db", check_same_thread=False)
replica.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT)")


def apply(changes: DataFrame, _batch: int) -> None:
    """Upserts and deletes. Doing them again does no harm, so at least once is enough."""
    text = changes.selectExpr("partition", "offset", "string(key)", "string(value)")
    for row in text.orderBy("partition", "offset").toLocalIterator():
        if row.value is None:
            replica.execute("DELETE FROM orders WHERE id = ?", [row.key])
        else:
            replica.execute("INSERT OR REPLACE INTO orders VALUES (?, ?)", [row.key, row.value])
    replica.commit()


def follow() -> dict[str, str]:
    """Bring the replica up to date with the topic."""
    log = spark.readStream.format("lastword").options(
        store=store_url, subscribe="orders", startingOffsets="earliest"
    )
    query = log.load().writeStream.foreachBatch(apply)
    query = query.option("checkpointLocation", str(folder / "follow")).trigger(availableNow=True)
    query.start().awaitTermination()
    return dict(replica.execute("SELECT id, state FROM orders ORDER BY id"))


sell("INSERT INTO orders VALUES (1, 'new'), (2, 'new')", "UPDATE orders SET state = 'packed'")
sell("UPDATE orders SET state = 'paid' WHERE id = 1", "INSERT INTO orders VALUES (3, 'new')")
sell("DELETE FROM orders WHERE id = 2", "UPDATE orders SET state = 'packed' WHERE id = 3",
     "UPDATE orders SET state = 'shipped' WHERE id = 3")  # fmt: skip
batches = capture()
print(f"{batches} batches of changes, {orders.describe().records} records in the log")

passes = store.clean("orders", force=True, spark=spark)
removed = sum(done.removed["obsolete"] for done in passes)
print(f"after a pass: {orders.describe().records} records, {removed} obsolete ones removed")

latest = spark.read.format("lastword").options(store=store_url, subscribe="orders", view="latest")
rows = latest.load().selectExpr("string(key)", "string(value)").orderBy("key").collect()
print("latest:", {row.key: row.value for row in rows})

found = follow()
is_same = list(found.items()) == [(str(i), s) for i, s in shop.execute("SELECT * FROM orders")]
print(f"the replica has {found}, as the shop has: {is_same}")

sell("DELETE FROM orders WHERE id = 1")
capture()
print(f"then 1 is deleted: the replica has {follow()}")
