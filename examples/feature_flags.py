"""Feature flags that many processes read: each has a table of its own, which follows the topic.

To look at a flag is to look into the process's own memory. To change one is to append a record;
every reader has it some `refresh_ms` later. It prints:

3 readers start: new-search is off, off, off
it is set to on:
  reader 0: new-search was off and is on
  reader 1: new-search was off and is on
  reader 2: new-search was off and is on
it is deleted, which means off:
  reader 0: new-search was on and is off
  reader 1: new-search was on and is off
  reader 2: new-search was on and is off
what became of the flag, newest first: offset 1 deleted, offset 0 on
"""

import subprocess
import sys
import tempfile

import lastword

FLAG, DEFAULT = "new-search", b"off"


def read_flags(url: str, name: str) -> None:
    """A reader: shows the flag when it starts and whenever it changes, until its input ends."""

    def show(change) -> None:
        was, is_ = ((value or DEFAULT).decode() for value in (change.old, change.new))
        print(f"  reader {name}: {change.key.decode()} was {was} and is {is_}", flush=True)

    with (
        lastword.open(url, create=False) as store,
        store.topic("flags").table(refresh_ms=50, on_change=show) as flags,
    ):
        print(flags.get(FLAG, DEFAULT).decode(), flush=True)
        sys.stdin.read()


def started(url: str, name: str) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, __file__, url, name], **pipes)


def said(readers: list[subprocess.Popen[str]]) -> list[str]:
    """The next line of each; waits until all have said one."""
    return [reader.stdout.readline().rstrip() for reader in readers]


def main(url: str) -> None:
    store = lastword.open(url)
    topic = store.create_topic("flags")

    readers = [started(url, str(number)) for number in range(3)]
    print(f"{len(readers)} readers start: {FLAG} is {', '.join(said(readers))}")

    with topic.table() as flags:  # what is set here is appended first, and durable
        print("it is set to on:")
        flags[FLAG] = "on"
        print("\n".join(said(readers)))

        print("it is deleted, which means off:")
        del flags[FLAG]
        print("\n".join(said(readers)))

    for reader in readers:
        reader.stdin.close()
    for reader in readers:
        reader.wait()

    versions = [
        f"offset {r.offset} {(r.value or b'deleted').decode()}" for r in topic.history(FLAG)
    ]
    print("what became of the flag, newest first:", ", ".join(versions))


if __name__ == "__main__":
    if sys.argv[1:]:
        read_flags(*sys.argv[1:])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(folder)
