"""Flip bits all over a file of the log: is a wrong record ever read?"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import lastword
from lastword.errors import BrokenFileError
from lastword.topic import Topic

_FATES = {0: "no difference", 1: "reported as corrupt", 2: "another error", 3: "A WRONG RECORD"}


def flips(folder: Path) -> dict[str, str]:
    """One bit in every third byte of a file, then read all of it, a part of it, and some keys."""
    topic = lastword.open(folder / "flips").create_topic("t")
    topic.append(
        (f"key-{i % 50}", None if i % 17 == 0 else f"value {i} " * 3, 1000 + i, {"h": b"x"})
        for i in range(400)
    )
    path = next(folder.rglob("*.parquet"))
    content, dice = path.read_bytes(), random.Random(1)
    fates: Counter[str] = Counter()
    for at in range(0, len(content), 3):
        flipped = bytearray(content)
        flipped[at] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)
        fates[_fate(topic)] += 1
    return {fate: str(count) for fate, count in sorted(fates.items())}


def _fate(topic: Topic) -> str:
    """What a reader makes of the file; in a process of its own, which may not survive it."""
    child = os.fork()
    if child == 0:
        try:
            all_of_it = list(topic.read(0))
            part = list(topic.read(0, start=200, end=300))
            sound = [r.offset for r in all_of_it] == list(range(400)) and all(
                r.value in (None, b"value %d " % (r.offset or 0) * 3)
                and r.key == b"key-%d" % ((r.offset or 0) % 50)
                and r.timestamp == 1000 + (r.offset or 0)
                and r.headers == (("h", b"x"),)
                for r in all_of_it
            )
            for number in (0, 17, 49):  # 350 + number is the last offset of its key
                sound &= topic.get(f"key-{number}") == all_of_it[350 + number]
            os._exit(0 if sound and part == all_of_it[200:300] else 3)
        except BrokenFileError:
            os._exit(1)
        except BaseException:
            os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return _FATES.get(code, "the process died")
