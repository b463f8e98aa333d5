"""Debezium's change events as a topic: the rows of a database table, by their primary key.

Debezium writes an envelope for every change of a row: `op` is c, u, d or r (created, updated, deleted,
read by a snapshot), `before` and `after` are the row; after a deletion comes a tombstone. With the
transformation ExtractNewRecordState the value is the row itself. Both forms come with a schema around
them, or without. Here the events lie in a topic `shop.customers`, as `lastword mirror` copies it from
Kafka, and become a topic `customers` whose latest view is the table. It prints:

the feed: 9 events
(1, 'Ada') (2, 'Grace') (3, 'Edsger')
one event more than once changes nothing: 3 rows
after a truncate: 0 rows
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import lastword
from lastword import Record

Row = dict[str, Any]


def payload(data: bytes | None) -> Any:
    """The JSON, without the schema that Kafka Connect may have put around it."""
    if data is None:
        return None
    found = json.loads(data)
    is_wrapped = isinstance(found, dict) and found.keys() == {"schema", "payload"}
    return found["payload"] if is_wrapped else found


def row_after(value: Any) -> Row | None:
    """The row after the change, in either form; None if it is deleted."""
    if value is None:
        return None
    if "op" in value and ("after" in value or "before" in value):
        return None if value["op"] == "d" else value["after"]
    if value.get("__deleted") in (True, "true"):
        return None
    return {name: field for name, field in value.items() if not name.startswith("__")}


def change(event: Record) -> Record:
    """What an event with a key does to the table, as a record of the topic that holds its rows."""
    key = json.dumps(payload(event.key), sort_keys=True)
    row = row_after(payload(event.value))
    text = None if row is None else json.dumps(row, ensure_ascii=False)
    return Record(key, text, event.timestamp)


def is_truncation(event: Record) -> bool:
    """Whether all rows have gone. (Other events without a key are messages, and change no row.)"""
    return event.key is None and (payload(event.value) or {}).get("op") == "t"


def follow(store: lastword.Store, events: str, table: str, group: str) -> int:
    """Carry over what is new. If it dies before the commit, some is carried over again: no harm."""
    rows, count = store.topic(table), 0
    with store.consumer(group, [events]) as consumer:
        while batch := consumer.poll(timeout_ms=0):
            new: list[Record] = []
            for event in batch:
                if event.key is not None:
                    new.append(change(event))
                elif is_truncation(event):
                    rows.append(new)
                    new = [Record(row.key, None, event.timestamp) for row in rows.latest()]
            rows.append(new)
            consumer.commit()
            count += len(batch)
    return count


def wrapped(value: Any) -> str:
    return json.dumps({"schema": {"type": "struct"}, "payload": value})


store = lastword.open(Path(tempfile.mkdtemp()) / "store")
feed = store.create_topic("shop.customers", config={"cleanup.policy": "delete"})
customers = store.create_topic("customers")


def envelope(op: str, before: Row | None, after: Row | None) -> Row:
    return {"op": op, "before": before, "after": after, "source": {"table": "customers"}}


ada, grace, alan = ({"id": i, "name": n} for i, n in enumerate(("Ada", "Hopper", "Alan"), 1))
edsger = {"id": 3, "name": "Edsger"}
feed.append([
    (wrapped({"id": 1}), wrapped(envelope("r", None, ada))),
    (wrapped({"id": 2}), wrapped(envelope("c", None, grace))),
    ('{"id": 2}', json.dumps(envelope("u", grace, grace | {"name": "Grace"}))),
    ('{"id": 3}', json.dumps(envelope("c", None, alan))),
    ('{"id": 3}', json.dumps(envelope("d", alan, None))),
    ('{"id": 3}', None),  # the tombstone that follows a deletion
    ('{"id": 3}', json.dumps(edsger | {"__op": "c", "__deleted": "false"})),  # the flat form
    ('{"id": 4}', json.dumps({"id": 4, "name": "Nobody", "__deleted": "false"})),
    ('{"id": 4}', json.dumps({"id": 4, "name": "Nobody", "__deleted": "true"})),
])  # fmt: skip
print(f"the feed: {follow(store, 'shop.customers', 'customers', 'carrier')} events")
table = sorted(tuple(json.loads(r.value or b"").values()) for r in customers.latest())
print(*table)

store.group("carrier").delete()  # so that all is read again
follow(store, "shop.customers", "customers", "carrier")
print(f"one event more than once changes nothing: {len(list(customers.latest()))} rows")

feed.append([(None, json.dumps({"op": "t", "before": None, "after": None}))])
follow(store, "shop.customers", "customers", "carrier")
print(f"after a truncate: {len(list(customers.latest()))} rows")
store.close()
