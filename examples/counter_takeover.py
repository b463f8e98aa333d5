"""A counter that is killed in the middle of its work, and another process that takes over.

It journals its counts together with the position up to which it has read its input, in one append.
An append is all or nothing, so whoever takes over goes on from there: no click is lost, none is
counted twice. It prints:

600 clicks to count
the first counter is killed: exit code -9, the journal stands at …
its counts are those of the clicks up to there: True
the second counter begins at that position: True
it has counted 600: /about 121, /home 313, /shop 166; as the clicks say: True
if the first one wakes up: writer 'counter' appended version 600 already, so version 320 is refused; …
the journal had … records, after a pass it has 4
"""

import random
import subprocess
import sys
import tempfile
from collections import Counter

import lastword
from lastword.testing import InProcess


def restore(journal: lastword.Topic) -> tuple[Counter[str], int]:
    """The counts, and the position in the clicks that they are true for."""
    state = {key.decode(): int(value) for key, value in journal.latest().to_dict().items()}
    position = state.pop("position", 0)
    return Counter(state), position


def count(url: str) -> None:
    """The service. It says how far it is, before it begins and after each append."""
    store = lastword.open(url, create=False)
    clicks, journal = store.topic("clicks"), store.topic("journal")
    counts, position = restore(journal)
    print(position, flush=True)
    while batch := list(clicks.read(0, start=position, limit=20)):
        pages = [record.key.decode() for record in batch]
        counts.update(pages)
        position = batch[-1].offset + 1
        changed = [(page, str(counts[page])) for page in set(pages)]
        # The version grows with the position: who was overtaken by another is refused.
        journal.append([*changed, ("position", str(position))], writer=("counter", position))
        print(position, flush=True)


def started(url: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def main(url: str) -> None:
    store = lastword.open(url)
    clicks = store.create_topic("clicks", config={"cleanup.policy": "delete"})
    journal = store.create_topic("journal", partitions=3)
    pages = random.Random(7).choices(["/home", "/shop", "/about"], [5, 3, 2], k=600)
    clicks.append([(page, f"visitor {number}") for number, page in enumerate(pages)])
    print(len(pages), "clicks to count")

    first = started(url)
    while int(first.stdout.readline()) < 300:
        pass
    first.kill()  # SIGKILL, so it tidies nothing up
    exit_code = first.wait()
    counts, position = restore(journal)
    print(f"the first counter is killed: exit code {exit_code}, the journal stands at {position}")
    print("its counts are those of the clicks up to there:", counts == Counter(pages[:position]))

    second = started(url)
    said = second.communicate()[0].split()
    print("the second counter begins at that position:", int(said[0]) == position)
    counts, position = restore(journal)
    shown = ", ".join(f"{page} {counts[page]}" for page in sorted(counts))
    print(f"it has counted {position}: {shown}; as the clicks say: {counts == Counter(pages)}")

    try:
        journal.append([("/home", "999")], writer=("counter", 320))
    except lastword.LastwordError as error:
        print("if the first one wakes up:", error)

    had = journal.describe().records
    store.clean("journal", force=True, runner=InProcess())  # leave the runner out to use Spark
    print(f"the journal had {had} records, after a pass it has {journal.describe().records}")


if __name__ == "__main__":
    if sys.argv[1:]:
        count(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(folder)
