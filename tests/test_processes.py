"""Many processes on one store, and processes that are killed: nothing lost, nothing doubled."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections import defaultdict
from pathlib import Path

import pytest

import lastword
from lastword.store import Store
from tests.soak import times

WRITERS, APPENDS = 8, 12


def _write(url: str, writer: int) -> None:
    with lastword.open(url, create=False) as store:
        topic = store.topic("t")
        for i in range(APPENDS):
            topic.append([(f"w{writer}-{i}-{j}", f"{writer} {i} {j}") for j in range(3)])


def test_eight_processes_append_to_one_topic(catalog_url: str) -> None:
    with lastword.open(catalog_url) as store:
        store.create_topic("t", partitions=3)
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_write, args=(catalog_url, w)) for w in range(WRITERS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [p.exitcode for p in processes] == [0] * WRITERS
    with lastword.open(catalog_url) as store:
        _dense_and_in_order(store)
        assert store.check().is_clean


def _dense_and_in_order(store: Store) -> None:
    topic = store.topic("t")
    seen = []
    for number, (log_start, log_end) in topic.offsets().items():
        order: dict[str, list[tuple[int, int]]] = defaultdict(list)
        offsets = []
        for record in topic.read(number):
            assert isinstance(record.value, bytes)
            writer, i, j = record.value.decode().split()
            order[writer].append((int(i), int(j)))
            offsets.append(record.offset)
            seen.append((writer, i, j))
        assert offsets == list(range(log_start, log_end))
        assert all(sent == sorted(sent) for sent in order.values())
    assert len(seen) == len(set(seen)) == WRITERS * APPENDS * 3


KILLED_WRITER = textwrap.dedent(
    """
    import sys, lastword
    topic = lastword.open(sys.argv[1], create=False).topic("t")
    first = int(sys.argv[2])
    for version in range(first, 10**9):
        records = [(f"{version}-{i}", "x" * 50) for i in range(20)]
        topic.append(records, writer=("w", version))
        print(version, flush=True)
    """
)


def test_a_writer_killed_many_times(catalog_url: str, tmp_path: Path) -> None:
    """kill -9 in the middle of appends: what was acknowledged is there, once, and no half append.

    After each kill the writer comes back and repeats the version it does not know the fate of.
    """
    dice = random.Random(7)
    with lastword.open(catalog_url) as store:
        store.create_topic("t", partitions=4)
    acknowledged = -1
    for _ in range(times(5)):
        writer = subprocess.Popen(
            [sys.executable, "-c", KILLED_WRITER, catalog_url, str(acknowledged + 1)],
            stdout=subprocess.PIPE,
        )
        assert writer.stdout is not None
        for _ in range(dice.randint(1, 12)):
            acknowledged = int(writer.stdout.readline())
        time.sleep(dice.random() * 0.02)  # to hit another step of the append each time
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.stdout.read().split()
        acknowledged = int(rest[-1]) if rest else acknowledged
        writer.wait()
    with lastword.open(catalog_url) as store:
        keys = [r.key for r in store.topic("t").read()]
        assert len(keys) == len(set(keys))
        versions = {int(k.split(b"-")[0]) for k in keys if isinstance(k, bytes)}
        assert versions >= set(range(acknowledged + 1))
        assert len(keys) == 20 * len(versions)
        kinds = {p.kind for p in store.check(orphan_age_ms=0).problems}
        assert kinds <= {"orphan"}
        store.gc(orphan_age_ms=0)
        assert store.check(orphan_age_ms=0).is_clean


def test_dying_after_each_step_of_an_append(catalog_url: str) -> None:
    """The crash story of catalog.commits, by its numbers."""
    with lastword.open(catalog_url) as store:
        store.create_topic("t").append([("a", "0")], writer=("w", 0))
    expected = {
        # die after step: offsets before the repeat, was it a repeat, orphans
        1: ((0, 1), False, 1),
        2: ((0, 1), False, 1),
        3: ((0, 2), True, 0),
    }
    for step, (bounds, is_repeat, orphans) in expected.items():
        died = subprocess.run(
            [sys.executable, "-c", DYING_WRITER, catalog_url, str(step)], check=False
        )
        assert died.returncode == 9, step
        with lastword.open(catalog_url) as store:
            topic = store.topic("t")
            problems = store.check(orphan_age_ms=0).problems
            assert topic.offsets()[0] == bounds, step
            assert [p.kind for p in problems] == ["orphan"] * orphans, step
            again = topic.append([("a", "1")], writer=("w", step))
            assert again.is_repeat is is_repeat, step
            store.gc(orphan_age_ms=0)
            assert store.check(orphan_age_ms=0).is_clean
            topic.delete()
            store.create_topic("t").append([("a", "0")], writer=("w", 0))
            store.gc(orphan_age_ms=0)


DYING_WRITER = textwrap.dedent(
    """
    import os, sys, lastword
    from lastword.catalog import writers
    from lastword.log import append

    step = int(sys.argv[2])
    die = lambda *_, **__: os._exit(9)
    if step == 1:
        append.commit_append = die                  # staged, nothing begun
    elif step == 2:
        writers.remember = die                      # in the transaction, all rows inserted
    elif step == 3:
        commit_append = append.commit_append
        append.commit_append = lambda *a: (commit_append(*a), os._exit(9))
    lastword.open(sys.argv[1]).topic("t").append([("a", "1")], writer=("w", step))
    """
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_uses_its_own_connections(catalog_url: str) -> None:
    with lastword.open(catalog_url) as store:
        topic = store.create_topic("t")
        topic.append([("a", "1")])
        child = os.fork()
        if child == 0:
            try:
                topic.append([("a", "2")])
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        topic.append([("a", "3")])
        assert [r.value for r in topic.read(0)] == [b"1", b"2", b"3"]
