"""The first ten minutes: a topic, some records, a tombstone, a look at the log. It prints:

offsets 0 to 5
1001 moved to Paper Road 21
1003 moved out
segments: [(0, 6), (6, 1)]
"""

import tempfile

import lastword

with tempfile.TemporaryDirectory() as folder, lastword.open(folder) as store:
    users = store.create_topic("users", partitions=1, config={"cleanup.policy": "compact"})
    done = users.append(
        [
            ("1001", "4 Privet Dr"),
            ("1002", "221B Baker Street"),
            ("1003", "Milkman Road"),
            ("1002", "21 Jump St"),
            ("1001", "Paper St"),
            ("1001", "Paper Road 21"),
        ]
    )
    (where,) = done.ranges
    print(f"offsets {where.base_offset} to {where.last_offset}")

    users.roll()
    users.append([("1003", None)])
    for record in users.read(partition=0, start=5):
        key = record.key.decode()
        print(
            f"{key} moved out" if record.is_tombstone else f"{key} moved to {record.value.decode()}"
        )

    segments = users.describe().partitions[0].segments
    print("segments:", [(segment.base, segment.records) for segment in segments])
