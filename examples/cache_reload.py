"""A cache that is restored after a restart: a table with a snapshot in a local file.

A restart reads only what is new. A snapshot that was away for so long that deletions are no longer
in the log is made anew, so that no deleted key stays. It prints:

the first start reads 100 % of the log: 20000 prices, p-7 costs 7.49
a restart reads 0 % of the log: 19999 prices, p-7 costs 5.00
a day later the log has 19998 records, and no tombstone
a copy that only reads on has p-7 still: True
a restart reads 100 % of the log: 19998 prices, p-7 costs nothing
"""

import tempfile
from pathlib import Path

import lastword
from lastword.testing import InProcess, ManualClock

DAY_MS = 86_400_000  # the default of delete.retention.ms

folder = Path(tempfile.mkdtemp())
clock = ManualClock()  # so that a day passes at once; leave it out to use the time of day
store = lastword.open(folder / "store", clock=clock)
prices = store.create_topic("prices")
prices.append([(f"p-{number}", f"{number}.49") for number in range(20_000)])


def start(what: str) -> tuple[dict[bytes, bytes], int]:
    """Have the cache, as a service does when it starts, and say what that took."""
    read_bytes: list[int] = []
    all_bytes: list[int] = []
    prices.table(progress=all_bytes.append).close()  # without a snapshot everything is read
    with prices.table(snapshot=folder / "cache.db", progress=read_bytes.append) as cache:
        price = cache.get("p-7", b"nothing").decode()
        share = f"{100 * sum(read_bytes) / sum(all_bytes):.0f} %"
        print(f"{what} reads {share} of the log: {len(cache)} prices, p-7 costs {price}")
        return dict(cache), cache.position[0]


start("the first start")

# The service is down, the topic goes on.
prices.append([("p-7", "5.00"), ("p-8", None)])
copy, position = start("a restart")

# It is down again, and for long: the cleaner removes first the obsolete records, and when
# delete.retention.ms is over also the tombstones. Leave the runner out to use Spark.
prices.append([("p-7", None)])
store.clean("prices", force=True, runner=InProcess())
clock.advance(DAY_MS)
store.clean("prices", force=True, runner=InProcess())
(partition,) = prices.describe().partitions
tombstones = sum(segment.tombstones for segment in partition.segments)
print(f"a day later the log has {partition.records} records, and {tombstones or 'no'} tombstone")

# Who goes on from an old position does not learn of the deletion: there is nothing left to read.
for record in prices.read(0, start=position):
    if record.is_tombstone:
        del copy[record.key]
    else:
        copy[record.key] = record.value
print("a copy that only reads on has p-7 still:", b"p-7" in copy)

# The table knows that its position is too old, and is restored as a whole.
start("a restart")
