"""lastword clean|cleaner|passes|why|metrics, as they are typed."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lastword
from lastword.errors import PolicyViolationError, UnknownTopicError
from tests.commands import Lastword
from tests.notation import live_paths, shown, write
from tests.waiting import until

LOG = "a\t1\nb\t2\na\t3\nb\tNULL\nc\t4\n"


@pytest.fixture
def users(run: Lastword) -> None:
    run("topics", "create", "users")
    run("produce", "users", "--null-marker", "NULL", stdin=LOG)


class TestClean:
    pytestmark = pytest.mark.usefixtures("users")

    def test_it_reports(self, run: Lastword, spark: SparkSession) -> None:
        idle = run("clean")
        assert idle.out == (
            "users-0: not cleaned: all that is dirty is in the active segment\nnothing was cleaned\n"
        )
        done = run("clean", "users", "--force")
        assert (done.code, done.error) == (0, None)
        assert "users-0: 5 → 3 records (2 obsolete removed), " in done.out
        assert "1 file(s) written, 0 kept, in " in done.out

    def test_json(self, run: Lastword, spark: SparkSession) -> None:
        (done,) = run("clean", "--force", "--json").json["passes"]
        assert done["removed"] == {"obsolete": 2, "tombstone": 0, "null key": 0}
        assert run("passes", "--json").json == [done]
        again = run("clean", "--force", "--json").json
        assert (again["passes"], again["expired"]) == ([], [])
        assert again["left"][0]["reason"] == "nothing was appended since the last pass"

    def test_dry_run(self, run: Lastword) -> None:
        planned = run("clean", "--force", "--dry-run")
        assert planned.out == (
            "users-0: would be cleaned (forced, dirty ratio 1.00), offsets 0 to 4; "
            "5 records are covered\n"
        )
        (found,) = run("clean", "--dry-run", "--json").json["plans"]
        assert found["clean"] is False
        assert found["reason"] == "all that is dirty is in the active segment"
        assert "would not be cleaned" in run("clean", "--dry-run").out
        assert run("passes").out == "no passes yet\n"

    def test_the_verdict_on_every_record(self, run: Lastword) -> None:
        said = run("clean", "--force", "--dry-run", "--records").out.replace("\t", " ").splitlines()
        assert said[:3] == [
            "- users-0:0 a obsolete, superseded by offset 2",
            "- users-0:1 b obsolete, superseded by offset 3",
            "  users-0:2 a kept",
        ]
        assert said[3].startswith("  users-0:3 b tombstone until 20")
        rows = run("clean", "--force", "--dry-run", "--records", "--json").json
        assert [r["superseded_by"] for r in rows] == [2, 3, None, None, None]
        assert run("clean", "--records").code == 2

    def test_errors_come_before_spark_is_started(self, run: Lastword) -> None:
        assert isinstance(run("clean", "user").error, UnknownTopicError)
        run("configs", "alter", "users", "--set", "cleanup.policy=delete")
        assert isinstance(run("clean", "users").error, PolicyViolationError)
        run("configs", "alter", "users", "--set", "cleanup.policy=compact,delete")
        run("configs", "alter", "users", "--set", "retention.bytes=0")
        assert isinstance(run("clean", "users", "--partition", "7").error, UnknownTopicError)
        said = run("clean", "users", "--dry-run").out
        gone = "1 segment, 5 records (1 over retention.bytes=0)"
        assert (
            said
            == f"users-0: would first expire {gone}\nusers-0: would not be cleaned: it is empty\n"
        )
        assert run("clean", "users", "--dry-run", "--records", "--force").out == said
        assert f"  before that, retention would drop {gone}\n" in run("why", "users").out
        assert isinstance(run("passes", "users", "--partition", "7").error, UnknownTopicError)

    def test_a_failed_pass_is_exit_code_1(
        self,
        run: Lastword,
        spark: SparkSession,
        tmp_path: Path,
    ) -> None:
        with lastword.open(tmp_path / "store") as store:
            Path(store.base.root.full(live_paths(store.topic("users"))[0])).unlink()
        failed = run("clean", "--force")
        assert failed.code == 1
        assert "users-0: nothing was changed: " in failed.out
        assert "is missing" in failed.out
        assert "is missing" in run("passes", "--json").json[0]["error"]
        assert "users-0" in run("passes").out
        assert "the last pass failed" in run("why", "users").out

    def test_several_partitions_are_summed_up(self, run: Lastword, spark: SparkSession) -> None:
        run("topics", "create", "more", "--partitions", "2")
        for partition in ("0", "1"):
            run("produce", "more", "--partition", partition, stdin="a\t1\na\t2\n")
        assert "2 partitions: 4 → 2 records, " in run("clean", "more", "--force").out


class TestLooking:
    pytestmark = pytest.mark.usefixtures("users")

    def test_why(self, run: Lastword) -> None:
        said = run("why", "users").out
        assert said.startswith(
            "users-0: would not be cleaned now: all that is dirty is in the active segment\n"
            "  the newest 1.2 kB are in the active segment, which rolls at 268.4 MB"
        )
        found = run("why", "users", "--partition", "0", "--json").json
        assert found["partitions"][0]["is_eligible"] is False
        assert isinstance(run("why", "users", "--partition", "3").error, UnknownTopicError)

    def test_metrics(self, run: Lastword) -> None:
        assert "\nlastword_time_since_last_run_ms -1.0\n" in run("metrics").out
        assert run("metrics", "--json").json["uncleanable-partitions-count"] == 0


class TestService:
    """A real process, as people start it."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        with lastword.open(tmp_path / "store") as store:
            write(store.create_topic("t"), "a=1 a=2 | b=1*")
            store.alter({"log.cleaner.backoff.ms": 100})
        return tmp_path / "store"

    def started(
        self, folder: Path, *options: str, terminal: int | None = None
    ) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "lastword", "cleaner", "--store", str(folder), *options]
        errors = terminal if terminal is not None else subprocess.PIPE
        return subprocess.Popen(words, stderr=errors, start_new_session=True)

    def wait_for_passes(self, folder: Path, count: int) -> None:
        with lastword.open(folder) as store:
            until(lambda: len(store.passes()) >= count)

    def test_log_lines_and_sigterm(self, folder: Path) -> None:
        service = self.started(folder)
        self.wait_for_passes(folder, 1)
        with lastword.open(folder) as store:
            write(store.topic("t"), "b=2 | c=1*")  # more, while it runs
        self.wait_for_passes(folder, 2)
        service.send_signal(signal.SIGTERM)
        _, said = service.communicate(timeout=150)
        lines = said.decode().splitlines()
        assert service.returncode == 0, lines
        assert lines[0].endswith("Z the cleaner starts")
        assert "t-0: 2 → 1 records (1 obsolete removed)" in lines[2]
        assert lines[1].endswith("Z Spark has started; looking for work")
        assert lines[-1].endswith("stopped")
        assert len(lines) == 5, said.decode()
        with lastword.open(folder) as store:
            assert shown(store.topic("t"), offsets=True) == "1:a=2 3:b=2 | 4:c=1*"
            assert store.check().is_clean

    def test_if_spark_dies_it_is_started_again(self, folder: Path) -> None:
        service = self.started(folder)
        self.wait_for_passes(folder, 1)
        os.kill(_java_of(service.pid), signal.SIGKILL)
        with lastword.open(folder) as store:
            write(store.topic("t"), "b=2 | c=1*")
        self.wait_for_passes(folder, 2)
        service.send_signal(signal.SIGTERM)
        _, said = service.communicate(timeout=150)
        assert service.returncode == 0
        assert b"trouble, to be tried again: Spark has gone away" in said
        with lastword.open(folder) as store:
            assert [p.error for p in store.passes()] == [None, None]

    def test_a_wrong_master_ends_it_at_once(self, folder: Path) -> None:
        service = self.started(folder, "--master", "mars")
        _, said = service.communicate(timeout=150)
        assert service.returncode == 1
        assert b"error: SparkError: Spark could not be started at mars: " in said

    def test_a_live_status_and_ctrl_c_in_the_middle_of_a_pass(self, folder: Path) -> None:
        with lastword.open(folder) as store:
            store.alter({"log.cleaner.io.max.bytes.per.second": 100})  # it takes its time
            write(store.topic("t"), " ".join(f"k{i}=1" for i in range(2000)) + " | x=1*")
        ours, theirs = pty.openpty()
        service = self.started(folder, terminal=theirs)
        os.close(theirs)
        seen = b""
        deadline = time.monotonic() + 150
        while b"mark: 0 of" not in seen:
            assert time.monotonic() < deadline, seen
            seen += os.read(ours, 4096)
        assert b"cleaner of " in seen
        service.send_signal(signal.SIGINT)
        while True:
            try:
                seen += os.read(ours, 4096)
            except OSError:  # closed
                break
        assert service.wait(timeout=150) == 0
        assert b"the pass that was running is abandoned" in seen
        with lastword.open(folder) as store:
            assert store.passes() == []
            assert store.check().is_clean
            states = store.plan("t")
            assert states[0].state.row.claim is None

    def test_clean_is_interrupted(self, folder: Path) -> None:
        with lastword.open(folder) as store:
            store.alter({"log.cleaner.io.max.bytes.per.second": 10})
            words = [sys.executable, "-m", "lastword", "clean", "--store", str(folder)]
            command = subprocess.Popen(words, stderr=subprocess.PIPE, start_new_session=True)
            until(lambda: store.plan("t")[0].state.row.claim is not None)
            time.sleep(2)
            command.send_signal(signal.SIGINT)
            command.communicate(timeout=150)
            assert command.returncode == 130
            assert store.plan("t")[0].state.row.claim is None
            assert shown(store.topic("t")) == "a=1 a=2 | b=1*"


def _java_of(pid: int) -> int:
    """The Java process that this process has started."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_child = int((process / "stat").read_text().split()[3]) == pid
            if is_child and b"SparkSubmit" in (process / "cmdline").read_bytes():
                return int(process.name)
    raise AssertionError("no Java")
