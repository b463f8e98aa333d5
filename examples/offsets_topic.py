"""A consumer that keeps its offsets in a compacted topic, in the same append as its results.

`store.consumer` commits after the results were appended: at least once, for a crash between the two
has some records worked on again. An append is all or nothing over several topics, so results and
offsets that go in one are never apart: exactly once. Kafka, too, keeps offsets in a compacted topic,
keyed by group, topic and partition. It prints:

6 orders
committed after the results: 8 invoices, twice: o-1, o-3
appended with the results: 6 invoices, twice: none
the offsets, from 6 records: exact/orders/0 at 4, exact/orders/1 at 2
after a pass: 2 records
"""

import tempfile
from collections import Counter

import lastword
from lastword.testing import InProcess

GROUP = "exact"

store = lastword.open(tempfile.mkdtemp())
orders = store.create_topic("orders", partitions=2, config={"cleanup.policy": "delete"})
committed_after = store.create_topic("committed-after", config={"cleanup.policy": "delete"})
appended_with = store.create_topic("appended-with", config={"cleanup.policy": "delete"})
offsets = store.create_topic("offsets")  # compacted: the last offset of each key is kept


class CrashError(Exception):
    """The process dies here."""


def at_least_once(crash: str) -> None:
    """The usual way: the group's offsets are the catalog's business."""
    with store.consumer("usual", ["orders"]) as consumer:
        while records := consumer.poll(max_records=2):
            die_if(crash == "before the append")
            committed_after.append([(r.key, b"invoice for " + r.value) for r in records])
            die_if(crash == "after the append")
            consumer.commit()


def exactly_once(crash: str) -> None:
    """The offsets in our own topic count; where they say, we start."""
    with store.consumer(GROUP, ["orders"]) as consumer:
        for key, offset in offsets.latest().to_dict().items():
            _, topic, partition = key.decode().split("/")
            consumer.seek(topic, int(partition), int(offset))
        while records := consumer.poll(max_records=2):
            invoices = [(r.key, b"invoice for " + r.value) for r in records]
            positions = [
                (f"{GROUP}/{topic}/{partition}", str(consumer.position(topic, partition)))
                for topic, partition in consumer.assignment
            ]
            die_if(crash == "before the append")
            store.append({"appended-with": invoices, "offsets": positions})  # all or nothing
            die_if(crash == "after the append")
            consumer.commit()  # not what counts; but lag is shown, and tombstones wait for us


def die_if(is_time: bool) -> None:
    if is_time:
        raise CrashError


def survive(work, results: lastword.Topic) -> str:
    """Start it again after each crash; what came of it."""
    for crash in ("before the append", "after the append", "never"):
        try:
            work(crash)
        except CrashError:
            continue
    invoices = Counter(record.key.decode() for record in results.read())
    twice = sorted(key for key, count in invoices.items() if count > 1)
    return f"{invoices.total()} invoices, twice: {', '.join(twice) or 'none'}"


orders.append([(f"o-{number}", f"{number} books") for number in range(6)])
print(orders.describe().records, "orders")
print("committed after the results:", survive(at_least_once, committed_after))
print("appended with the results:", survive(exactly_once, appended_with))

last = [f"{r.key.decode()} at {r.value.decode()}" for r in offsets.latest()]
print(f"the offsets, from {offsets.describe().records} records: {', '.join(last)}")
store.clean("offsets", force=True, runner=InProcess())  # leave the runner out to use Spark
print("after a pass:", offsets.describe().records, "records")
