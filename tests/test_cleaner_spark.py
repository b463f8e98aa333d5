"""The cleaner on Spark: one shared session, and processes that are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import sysconfig
import textwrap
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import lastword
from broker import unused_port
from lastword.catalog import schema
from lastword.errors import SparkError
from lastword.jobs.runner import Failure
from lastword.jobs.session import _launching, found_or_started, running
from lastword.jobs.spark import SparkRunner
from lastword.store import Store
from lastword.testing import InProcess, ManualClock
from tests.conftest import ROOT, new_store
from tests.notation import clean, live_paths, shown, write
from tests.test_cleaner import ADDRESS_BOOK


class Unit:
    """A number to work on."""

    def __init__(self, number: int) -> None:
        self.number = self.weight = number


def double(unit: Unit) -> int:
    if unit.number == 3:
        raise ValueError("three is bad")
    return 2 * unit.number


def double_or_die(unit: Unit) -> int:
    if unit.number == 3:
        os._exit(1)
    return 2 * unit.number


class TestJobs:
    def test_results_come_in_order_and_errors_are_values(self, spark: SparkSession) -> None:
        outcome = SparkRunner(spark).run("double", double, [Unit(n) for n in (5, 3, 1, 4)])
        assert outcome.results == (10, Failure("ValueError: three is bad"), 2, 8)
        assert len(outcome.job_ids) == 1

    def test_a_unit_that_kills_its_worker_fails_alone(self, spark: SparkSession) -> None:
        units = [Unit(n) for n in (5, 3, 1)]
        five, three, one = SparkRunner(spark).run("double", double_or_die, units).results
        assert (five, one) == (10, 2)
        assert isinstance(three, Failure)
        assert "the double job failed" in three.sentence

    def test_no_work_is_no_job(self, spark: SparkSession) -> None:
        assert SparkRunner(spark).run("double", double, []).job_ids == ()

    def test_progress_is_told(self, spark: SparkSession) -> None:
        told: list[tuple[str, int, int]] = []
        runner = SparkRunner(spark, lambda *what: told.append(what))
        runner.run("nap", nap, [Unit(1)])
        assert ("nap", 0, 1) in told

    def test_it_can_be_interrupted(self, spark: SparkSession) -> None:
        runner = SparkRunner(spark)
        threading.Timer(1, runner.interrupt).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            runner.run("sleep", sleep_long, [Unit(1)])
        with pytest.raises(KeyboardInterrupt):  # and no other job begins
            runner.run("double", double, [Unit(1)])
        assert time.monotonic() - began < 150
        assert SparkRunner(spark).run("double", double, [Unit(2)]).results == (4,)

    def test_the_job_group_is_given_back(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        for before in ("mine", None):
            context.setLocalProperty("spark.jobGroup.id", before)  # type: ignore[arg-type]
            SparkRunner(spark).run("double", double, [Unit(1)])
            assert context.getLocalProperty("spark.jobGroup.id") == before

    def test_workers_load_pyspark_as_it_is_installed(self, spark: SparkSession) -> None:
        """Not from Spark's zip, which has no byte code; all else on their path stays."""
        (seen,) = SparkRunner(spark).run("look", pyspark_and_path, [Unit(1)]).results
        assert not isinstance(seen, Failure)
        found, path = seen
        assert found == pyspark.__file__
        assert str(ROOT) in path
        zips = str(Path(pyspark.__file__).parent / "python" / "lib")
        assert not [entry for entry in path if entry.startswith(zips)]

    def test_only_a_quick_start_has_a_python_of_its_own(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        before = dict(os.environ)
        with _launching({}, is_quick=True):
            script = os.environ["PYSPARK_PYTHON"]
        with _launching({}, is_quick=False):
            assert os.environ["PYSPARK_PYTHON"] == sys.executable
        assert os.environ == before
        zip_, own = f"{Path(pyspark.__file__).parent}/python/lib/pyspark.zip", "/my zips/own.zip"
        shown_path = [script, "-c", "import os; print(os.environ['PYTHONPATH'])"]
        environment = {"PYTHONPATH": f"{zip_}:{own}:/*"}
        done = subprocess.run(shown_path, env=environment, capture_output=True, check=True)
        assert done.stdout == f"{own}:/*\n".encode()
        monkeypatch.setenv("PYSPARK_PYTHON", "/other/python")
        with _launching({}, is_quick=True):
            assert os.environ["PYSPARK_PYTHON"] == "/other/python"

    @pytest.mark.parametrize(
        ("module", "is_quiet"), [("pyspark.daemon", False), ("pyspark_lastword.daemon", True)]
    )
    def test_workers_end_quietly_when_spark_has_gone(self, module: str, is_quiet: bool) -> None:
        """Spark's own daemon is noisy still: when this is over, ours can go."""
        script = [sys.executable, "-c", GONE, module]
        environment = os.environ | {"PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"}
        done = subprocess.run(script, env=environment, capture_output=True, check=False, text=True)
        assert done.returncode == 1
        assert (done.stderr == "") == is_quiet, done.stderr

    def test_a_session_without_a_context_is_refused(self) -> None:
        with pytest.raises(SparkError, match="not Spark Connect"):
            SparkRunner(object()).run("double", double, [Unit(1)])  # type: ignore[arg-type]


GONE = textwrap.dedent(
    """
    import importlib, socket, sys
    from pyspark import daemon
    importlib.import_module(sys.argv.pop())
    here, there = socket.socketpair()
    there.close()
    daemon.worker(here, True)
    """
)


def pyspark_and_path(_: Unit) -> tuple[str, list[str]]:
    return pyspark.__file__, sys.path


def sleep_long(unit: Unit) -> int:
    time.sleep(300)
    return unit.number


def nap(unit: Unit) -> int:
    time.sleep(1.5)
    return unit.number


class TestOnSpark:
    def test_the_address_book(self, any_data: Store, spark: SparkSession) -> None:
        """Nobody says which session: the running one is found."""
        users = any_data.create_topic("users")
        users.append(ADDRESS_BOOK)
        (done,) = any_data.clean("users", force=True)
        assert [r.offset for r in users.read(partition=0)] == [2, 3, 5]
        assert done.removed == {"obsolete": 3, "tombstone": 0, "null key": 0}
        assert len(done.jobs) == 2
        assert set(done.seconds) == {"mark", "sweep", "commit"}
        assert any_data.check().is_clean
        assert running() is spark is found_or_started()

    def test_all_partitions_in_one_pair_of_jobs(self, store: Store, spark: SparkSession) -> None:
        for name in ("t", "u"):
            topic = store.create_topic(name, partitions=3)
            for p in range(3):
                write(topic, "a=1 b=1 | a=2", partition=p)
        passes = store.clean(force=True, spark=spark)
        assert len(passes) == 6
        assert {p.jobs for p in passes} == {passes[0].jobs}
        assert all(shown(store.topic(p.topic), p.partition) == "b=1 a=2" for p in passes)

    def test_a_corrupt_file_fails_its_partition_alone(
        self, local: Store, spark: SparkSession
    ) -> None:
        topic = local.create_topic("t", partitions=2)
        for p in range(2):
            write(topic, "a=1 a=2", partition=p)
        path = Path(local.base.root.full(live_paths(topic, 0)[0]))
        damaged = bytearray(path.read_bytes())
        damaged[20:200] = bytes(180)
        path.write_bytes(damaged)
        bad, good = sorted(local.clean(force=True, spark=spark), key=lambda p: p.partition)
        assert "is corrupt" in (bad.error or "")
        assert (good.error, shown(topic, 1)) == (None, "a=2")
        assert "is corrupt" in str(topic.why(0))
        assert [p.error is None for p in local.passes(limit=2)].count(False) == 1

    def test_more_keys_than_a_map_holds(self, local: Store, spark: SparkSession) -> None:
        local.alter({"log.cleaner.dedupe.buffer.size": 1_048_577})
        topic = local.create_topic("t")
        for i in range(3):
            topic.append([(f"key-{n}", str(i)) for n in range(30_000)])
        (done,) = local.clean(force=True, spark=spark)
        assert (done.keys, done.records_out) == (30_000, 30_000)
        assert done.shards > 4
        assert {r.value for r in topic.read(0)} == {b"2"}

    def test_throttled_it_takes_its_time(self, local: Store, spark: SparkSession) -> None:
        topic = local.create_topic("t", config={"compression.type": "uncompressed"})
        topic.append([("a", bytes(200_000)), ("b", bytes(200_000)), ("a", b"")])
        local.alter({"log.cleaner.io.max.bytes.per.second": 400_000})
        began = time.monotonic()
        (done,) = local.clean(force=True, spark=spark)
        assert done.bytes_read + done.bytes_written > 600_000
        assert time.monotonic() - began > 1.4


@pytest.mark.parametrize("seed", range(3))
def test_spark_does_what_one_process_does(
    seed: int, spark: SparkSession, tmp_path: Path, clock: ManualClock
) -> None:
    """Ninety random logs, thirty partitions a time, cleaned twice: by Spark, and unit by unit."""
    outcomes = []
    for name, runner in (("spark", SparkRunner(spark)), ("in process", InProcess())):
        with new_store(tmp_path / name, clock) as store:
            topic = store.create_topic("t", 30, {"delete.retention.ms": 0})
            random_ = random.Random(seed)
            passes = []
            for _ in range(2):
                for _segment in range(4):
                    topic.append(
                        [
                            (f"k{random_.randrange(9)}", random_.choice([None, "v"]), None, (), p)
                            for p in random_.choices(range(30), k=200)
                        ]
                    )
                    topic.roll(random_.randrange(30))
                passes += clean(topic, runner=runner)
            assert store.check().is_clean
            removed = sorted((p.partition, p.start, sorted(p.removed.items())) for p in passes)
            outcomes.append(([shown(topic, p, offsets=True) for p in range(30)], removed))
    assert outcomes[0] == outcomes[1]
    assert sum(dict(r[2])["tombstone"] for r in outcomes[0][1]) > 0


CLUSTER = textwrap.dedent(
    """
    import os, signal, sys, time
    from functools import partial
    import lastword
    from lastword.cleaner.choose import Asked
    from lastword.cleaner.run import Cleaner
    from lastword.jobs.session import found_or_started
    from lastword.jobs.spark import SparkRunner

    folder, master = sys.argv[1:]

    def with_fault(work, step, fault, unit):
        from pyspark import TaskContext
        first, second = (f"{folder}/{fault}-{step}-{which}" for which in ("first", "second"))
        result = work(unit)
        if TaskContext.get().attemptNumber() > 0:
            open(second, "w").close()
        try:  # the first to come
            os.close(os.open(first, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return result
        if fault == "slow":  # until speculation has done the same task elsewhere
            while not os.path.exists(second):
                time.sleep(0.05)
            return result
        daemon = os.getppid()
        executor = int(open(f"/proc/{daemon}/stat").read().split()[3])
        os.kill(executor if fault == "executor" else os.getpid(), signal.SIGKILL)

    class Faulty(SparkRunner):
        def __init__(self, session, fault):
            super().__init__(session)
            self.fault = fault

        def run(self, step, work, units):
            assert "lastword.zip" in super().run(step, where_from, units).results[0]
            return super().run(step, partial(with_fault, work, step, self.fault), units)

    def where_from(unit):
        return sys.modules["lastword"].__file__

    conf = {
        "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m",
        "spark.submit.pyFiles": f"{folder}/lastword.zip", "spark.task.maxFailures": "4",
        "spark.speculation": "true", "spark.speculation.interval": "100ms",
        "spark.speculation.efficiency.enabled": "false", "spark.speculation.quantile": "0.5", "spark.speculation.multiplier": "1.5",
        "spark.ui.showConsoleProgress": "false",
    }
    session = found_or_started(master, conf)
    for fault in ("slow", "worker", "executor"):
        with lastword.open(f"{folder}/{fault}", create=False) as store:
            with Cleaner(store.base, Faulty(session, fault)) as cleaner:
                done = cleaner.round(store._compacted((), Asked()), Asked(force=True))
        print(fault, [(p.error, p.records_in, p.records_out, p.files_written) for p in done.passes])

    def faulty(fault, batches):
        from pyspark import TaskContext
        yield from batches
        if TaskContext.get().partitionId() == 1:
            with_fault(lambda _: None, "write", f"{fault}", None)

    from lastword.spark import LastwordDataSource
    session.dataSource.register(LastwordDataSource)  # executors' Python finds no packages by itself
    door = f"{folder}/door"
    numbers = session.range(0, 4000, 1, 4).selectExpr("concat('k', id % 50) AS key", "string(id) AS value")
    for fault in ("slow", "executor"):
        rows = numbers.mapInArrow(partial(faulty, fault), numbers.schema)
        rows.write.format("lastword").options(store=door, topic=fault).mode("append").save()
        read = session.read.format("lastword").options(store=door, subscribe=fault)
        print("door", fault, read.load().count(), read.option("view", "latest").load().count())
    """
)
FAULTS = ("slow", "worker", "executor")
DOOR_FAULTS = ("slow", "executor")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A standalone master and two workers, each on a loopback address of its own; its URL."""
    home = Path(pyspark.__file__).parent
    port = unused_port()
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_NO_DAEMONIZE": "1"}

    def started(kind: str, *words: str) -> subprocess.Popen[bytes]:
        java_class = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), java_class, *words, "--webui-port", "0"],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    url = f"spark://127.0.0.1:{port}"
    processes = [started("Master", "--host", "127.0.0.1", "--port", str(port))]
    for i in (2, 3):
        options = ["--cores", "1", "--memory", "600m", "--work-dir", str(tmp_path / f"work-{i}")]
        processes.append(started("Worker", "--host", f"127.0.0.{i}", *options, url))
    yield url
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_cluster_of_two_workers(cluster: str, tmp_path: Path) -> None:
    """Two executor processes that have the package only because it is shipped to them.

    A task is so slow that Spark runs it twice, a Python worker is killed, an executor is killed, in
    each of the two jobs: nothing is lost, and no file is counted twice. So it is for what is written
    and read by `format("lastword")`.
    """
    for fault in FAULTS:
        with lastword.open(tmp_path / fault) as store:
            topic = store.create_topic("t", partitions=4)
            for p in range(4):
                write(topic, "a=1 b=1 | a=2 c=∅ | c=1 b=2", partition=p)
    with lastword.open(tmp_path / "door") as store:
        for fault in DOOR_FAULTS:
            store.create_topic(fault)
    (tmp_path / "cluster.py").write_text(CLUSTER)
    done = subprocess.run(
        [sys.executable, "cluster.py", str(tmp_path), cluster],
        cwd=tmp_path, env={**os.environ, **_without_lastword(tmp_path)},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    expected = [(None, 6, 3, 1)] * 4
    door = [f"door {fault} 4000 50" for fault in DOOR_FAULTS]
    assert done.stdout.splitlines() == [f"{fault} {expected}" for fault in FAULTS] + door
    with lastword.open(tmp_path / "door") as store:
        for fault in DOOR_FAULTS:  # written once, in order, though a task ran twice
            found = [int(r.value or 0) for r in store.topic(fault).read(0)]
            assert found == list(range(4000))
    orphans = {}
    for fault in FAULTS:
        with lastword.open(tmp_path / fault) as store:
            topic = store.topic("t")
            assert {shown(topic, p, offsets=True) for p in range(4)} == {"2:a=2 4:c=1 5:b=2"}
            assert store.check().is_clean
            orphans[fault] = len(store.check(orphan_age_ms=0).problems)
            store.gc(orphan_age_ms=0)
            assert store.check(orphan_age_ms=0).is_clean
    assert all(count >= 1 for count in orphans.values()), orphans  # of attempts that do not count


def _without_lastword(folder: Path) -> dict[str, str]:
    """A Python for executors that has everything but lastword, and lastword as an archive."""
    home = Path(lastword.__file__).parent
    with zipfile.ZipFile(folder / "lastword.zip", "w") as archive:
        for package in (home, home.with_name("pyspark_lastword")):
            for file in package.rglob("*.py"):
                archive.write(file, file.relative_to(package.parent))
    others = folder / "site-packages"
    others.mkdir()
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if "lastword" not in entry.name:
            (others / entry.name).symlink_to(entry)
    python = folder / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="{others}:$PYTHONPATH" exec {sys.executable} -S "$@"\n'
    )
    python.chmod(0o755)
    return {"PYSPARK_PYTHON": str(python)}


KEYS, TOMBSTONE_EVERY = 20, 7
LOADED = textwrap.dedent(
    """
    import sys, time, lastword
    store = lastword.open(sys.argv[1], create=False)
    topic = store.topic("t")
    keys, tombstone_every = map(int, sys.argv[2:])
    for n in range(1, 10**9):
        value = None if n % tombstone_every == 0 else str(n)
        topic.append([(f"k{n % keys}", value)])
        if n % 5 == 0:
            topic.roll()
        print(n, flush=True)
        time.sleep(0.01)  # a busy machine's cleaner shall not fall behind for ever
    """
)


def test_kill_it_at_random_moments_under_load(catalog_url: str) -> None:
    """A writer writes, a reader reads, and of the cleaner service first a Python worker is killed,
    then all of it: driver, JVM and workers."""
    with lastword.open(catalog_url) as store:
        config = {"min.cleanable.dirty.ratio": 0, "delete.retention.ms": 0}
        store.create_topic("t", config=config | {"file.delete.delay.ms": 2_000})
        store.alter({"log.cleaner.backoff.ms": 10})
    written: list[int] = []
    writer = subprocess.Popen(
        [sys.executable, "-c", LOADED, catalog_url, str(KEYS), str(TOMBSTONE_EVERY)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    listener = threading.Thread(target=lambda: written.extend(map(int, writer.stdout or [])))
    listener.start()
    stop = threading.Event()
    troubles: list[str] = []
    reader = threading.Thread(target=_read_on, args=(catalog_url, stop, troubles))
    reader.start()
    random_ = random.Random(4)
    try:
        cleaner = _service(catalog_url)
        _wait_for_a_pass(catalog_url)
        os.kill(random_.choice(_workers(cleaner.pid)), signal.SIGKILL)
        _wait_for_a_pass(catalog_url)  # it goes on
        time.sleep(random_.random())
        os.killpg(cleaner.pid, signal.SIGKILL)
        cleaner.wait()
        _nothing_lost(catalog_url, written)
        with lastword.open(catalog_url, create=False) as store:
            _release_dead_claims(store)
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        listener.join()
        stop.set()
        reader.join()
    assert troubles == []
    with lastword.open(catalog_url, create=False) as store:
        passes = store.clean(force=True, runner=InProcess())  # a rerun finishes
        assert all(p.error is None for p in passes)
        _nothing_lost(catalog_url, written)
        offsets = [r.offset for r in store.topic("t").read(0)]
        assert len(offsets) <= KEYS
        assert store.check().is_clean


def _service(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lastword", "cleaner", "--store", url, "--master", "local[1]"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def _workers(service: int) -> list[int]:
    """The Python workers of a Spark that this process has started."""
    parents, daemons = {}, set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(process.name)] = int((process / "stat").read_text().split()[3])
            if b"lastword.daemon" in (process / "cmdline").read_bytes():
                daemons.add(int(process.name))
    java = {pid for pid, parent in parents.items() if parent == service}
    return [pid for pid in daemons if parents[pid] in daemons and parents[parents[pid]] in java]


def _read_on(url: str, stop: threading.Event, troubles: list[str]) -> None:
    """Read from the start, again and again: offsets always ascend, and nothing is broken."""
    with lastword.open(url, create=False) as store:
        while not stop.is_set():
            try:
                offsets = [record.offset or 0 for record in store.topic("t").read(0)]
            except lastword.LastwordError as error:
                troubles.append(str(error))
                return
            if offsets != sorted(set(offsets)):
                troubles.append(f"out of order: {offsets}")


def _wait_for_a_pass(url: str) -> None:
    """Until one more has ended well."""
    deadline = time.monotonic() + 300
    with lastword.open(url, create=False) as store:
        before = _ended_well(store)
        while _ended_well(store) <= before:
            assert time.monotonic() < deadline, "no pass within 300 s"
            time.sleep(0.1)


def _ended_well(store: Store) -> int:
    return sum(1 for p in store.passes() if p.error is None)


def _release_dead_claims(store: Store) -> None:
    """What a minute, or an hour after a failure, would do."""
    with store.base.catalog.write() as tx:
        tx.execute(schema.partition.update().values(claim=None, retry_after_ms=0))


def _nothing_lost(url: str, written: list[int]) -> None:
    """Of each key, the last record is the last that was acknowledged, or one after it."""
    acknowledged = {f"k{n % KEYS}".encode(): n for n in list(written)}
    with lastword.open(url, create=False) as store:
        assert store.check(quick=True).is_clean
        found = {r.key: r for r in store.topic("t").read(0)}
        log_end = store.topic("t").offsets()[0][1]
    for key, n in acknowledged.items():
        if key in found:  # the record number n has offset n - 1: there is one writer
            assert (found[key].offset or 0) >= n - 1, f"{key!r} is back at {found[key]}"
        else:
            later = range(n, log_end + 1, KEYS)
            assert any(m % TOMBSTONE_EVERY == 0 for m in later), f"{key!r} is lost"
