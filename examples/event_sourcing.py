"""Event sourcing: what happened is the truth, and a snapshot of each account is a short cut to now.

Events are kept in a topic that is not compacted, snapshots in one that is. A snapshot says which
events are in it, so the two never need to be written together. It prints:

alice has 1452, from no snapshot and 1000 events
alice has 1663, from a snapshot at 1000 and 50 events; from all events: 1663
8 snapshots in the log; after a pass: 4
the events before 1050 are dropped: 0 are left
alice has 1664, from a snapshot at 1050 and 1 events
without a snapshot: events-0: offset 0 is below log start; valid positions are 1050 to 1051
"""

import json
import random
import tempfile

import lastword
from lastword.testing import InProcess

store = lastword.open(tempfile.mkdtemp())
events = store.create_topic("events", config={"cleanup.policy": "delete", "retention.ms": -1})
snapshots = store.create_topic("snapshots")  # compacted: the last one of each account is kept
OWNERS, dice = ("alice", "bob", "carol", "dave"), random.Random(7)


def happen(count: int) -> None:
    """Money comes and goes; `+5` and `-3` are events."""
    happened = [(dice.choice(OWNERS), f"{dice.randint(-50, 70):+}") for _ in range(count)]
    events.append(happened)


def rebuild(owner: str, *, use_snapshot: bool = True) -> tuple[int, int, int]:
    """The account now: its snapshot and the events since. Balance, position, and events read."""
    last = snapshots.get(owner).value if use_snapshot else None
    balance, start = json.loads(last) if last else (0, 0)
    end = start
    for event in events.read(0, start):
        if event.key == owner.encode():
            balance += int(event.value)
        end = event.offset + 1
    return balance, end, end - start


def take_snapshots() -> int:
    """One for each account, in one append; the position that the events must be kept from."""
    accounts = {owner: rebuild(owner)[:2] for owner in OWNERS}
    snapshots.append([(owner, json.dumps(account)) for owner, account in accounts.items()])
    return min(position for _, position in accounts.values())


happen(1000)
balance, _, read = rebuild("alice")
print(f"alice has {balance}, from no snapshot and {read} events")

take_snapshots()
happen(50)
balance, end, read = rebuild("alice")
truth, _, _ = rebuild("alice", use_snapshot=False)
print(f"alice has {balance}, from a snapshot at {end - read} and {read} events; ", end="")
print(f"from all events: {truth}")

# Old snapshots are obsolete: the cleaner removes them. Leave the runner out to use Spark.
needed_from = take_snapshots()
count = snapshots.describe().records
store.clean("snapshots", force=True, runner=InProcess())
print(f"{count} snapshots in the log; after a pass: {snapshots.describe().records}")

# Whoever needs no history may drop the events that are in every snapshot; retention.ms does it by age.
events.delete_records(0, before=needed_from)
print(f"the events before {needed_from} are dropped: {len(list(events.read(0)))} are left")
events.append([("alice", "+1")])
balance, end, read = rebuild("alice")
print(f"alice has {balance}, from a snapshot at {end - read} and {read} events")

# An account is never rebuilt from half of its events.
try:
    rebuild("alice", use_snapshot=False)
except lastword.LastwordError as error:
    print("without a snapshot:", error)
