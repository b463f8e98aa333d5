"""The command line, as it is typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import lastword
from lastword.cli import main
from lastword.errors import StorageError
from lastword.files.root import DataRoot
from tests.commands import Lastword
from tests.notation import live_paths


class TestTopics:
    def test_create_list_describe_delete(self, run: Lastword) -> None:
        made = run("topics", "create", "users", "--partitions", "2", "--config", "segment.ms=9")
        assert made.out == "created topic users: 2 partition(s), compact\n"
        run("produce", "users", stdin="a\t1\nb\t2\n")
        listed = run("topics", "list", "--json").json
        assert [(t["name"], t["partitions"], t["records"]) for t in listed] == [("users", 2, 2)]
        assert "users" in run("topics", "list").out
        described = run("topics", "describe", "users", "--json").json[0]
        assert described["partitions"][0]["log_end"] == 2
        assert described["partitions"][0]["segments"][0]["records"] == 2
        text = run("topics", "describe", "users").out
        assert "partition 0: log start 0, first dirty 0, log end 2" in text
        assert "partition 1: log start 0, first dirty 0, log end 0, no records" in text
        assert run("topics", "delete", "users", "--dry-run").out.startswith("would delete topic")
        assert run("topics", "delete", "users", "--json").json["deleted"] is True
        assert run("topics", "list", "--json").json == []

    def test_if_not_exists(self, run: Lastword) -> None:
        run("topics", "create", "t")
        assert "exists already" in str(run("topics", "create", "t").error)
        again = run("topics", "create", "t", "--if-not-exists")
        assert (again.code, again.out) == (0, "topic t exists already\n")
        assert run("topics", "create", "t", "--if-not-exists", "--json").json["created"] is False

    def test_add_partitions(self, run: Lastword) -> None:
        run("topics", "create", "t")
        assert run("topics", "add-partitions", "t", "3", "--json").json["partitions"] == 3
        assert "other partitions" in run("topics", "add-partitions", "t", "4").out

    def test_only_create_makes_a_store(self, run: Lastword, tmp_path: Path) -> None:
        for words in (["topics", "list"], ["consume", "t"], ["check"], ["gc"], ["expire"]):
            assert "no store is there" in str(run(*words).error)
        assert not (tmp_path / "store").exists()


class TestConfigs:
    def test_a_topics(self, run: Lastword) -> None:
        run("topics", "create", "t")
        run("configs", "alter", "t", "--set", "segment.ms=5", "--set", "cleanup.policy=delete")
        found = run("configs", "describe", "t", "--overridden", "--json").json
        assert all(s["is_overridden"] for s in found)
        assert {s["key"]: (s["value"], s["source"]) for s in found} == {
            "segment.ms": ("5", "topic"),
            "cleanup.policy": ("delete", "topic"),
        }
        assert run("configs", "alter", "t", "--remove", "segment.ms").out == (
            "segment.ms is back at its default\n"
        )
        assert len(run("configs", "describe", "t", "--json").json) == 15
        assert "lz4" in run("configs", "describe", "t").out

    def test_the_stores(self, run: Lastword) -> None:
        run("topics", "create", "t")
        run("configs", "alter", "--set", "log.retention.ms=5")
        found = run("configs", "describe", "--overridden", "--json").json
        assert [(s["key"], s["value"]) for s in found] == [("log.retention.ms", "5")]
        by_store = run("configs", "describe", "t", "--overridden", "--json").json
        assert [(s["key"], s["source"]) for s in by_store] == [("retention.ms", "store")]

    @pytest.mark.parametrize(
        ("words", "problem"),
        [
            (["--set", "segmnt.ms=5"], "did you mean 'segment.ms'"),
            (["--set", "segment.ms"], "'segment.ms' is not KEY=VALUE"),
            (["--set", "segment.ms=0"], "segment.ms=0: must be greater than or equal to 1"),
            (["--remove", "nonsense"], "unknown topic setting 'nonsense'"),
            ([], "nothing to alter"),
            (["--set", "segment.ms=5", "--remove", "segment.ms"], "give --set or --remove"),
        ],
    )
    def test_mistakes(self, run: Lastword, words: list[str], problem: str) -> None:
        run("topics", "create", "t")
        assert problem in str(run("configs", "alter", "t", *words).error)

    def test_help_lists_every_setting(self, run: Lastword) -> None:
        text = " ".join(run("configs", "alter", "--help").out.split())
        assert "min.cleanable.dirty.ratio" in text
        assert "log.cleaner.dedupe.buffer.size (at least 1048577; default 134217728)" in text


class TestProduceAndConsume:
    def test_text(self, run: Lastword) -> None:
        run("topics", "create", "t")
        run("produce", "t", "--null-marker", "NULL", stdin="a\t1\r\nb\t\nc\tx\ty\na\tNULL\n")
        assert run("consume", "t").out == "a\t1\nb\t\nc\tx\ty\na\tnull\n"
        assert run("consume", "t", "--null-marker", "∅", "--separator", "=").out.endswith("a=∅\n")
        assert run("consume", "t", "--show-offsets").out.startswith("0:0\ta\t1\n0:1\tb")
        run("produce", "t", "--separator", "::", stdin="k::v\n")
        assert run("consume", "t", "--partition", "0", "--offset", "4").out == "k\tv\n"

    def test_line_ends_and_escapes(self, run: Lastword) -> None:
        run("topics", "create", "t")
        run("produce", "t", "--separator", r"\t", stdin="a\tx\r\r\nb\ty")
        assert run("consume", "t", "--separator", r"\t").out == "a\tx\r\nb\ty\n"

    def test_ctrl_c_says_how_far_it_came(self, run: Lastword, tmp_path: Path) -> None:
        run("topics", "create", "t")
        command = [sys.executable, "-m", "lastword", "produce", "t", "--store", f"{tmp_path}/store"]
        pipe = subprocess.PIPE
        producing = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        assert producing.stdin is not None
        producing.stdin.write(b"a\t1\nb\t2\n")
        producing.stdin.flush()
        while run("consume", "t").out != "a\t1\nb\t2\n":  # its linger is over
            time.sleep(0.1)
        producing.send_signal(signal.SIGINT)
        assert producing.stderr is not None
        assert producing.stderr.read() == b"interrupted; the first 2 record(s) are appended\n"
        assert producing.wait() == 130

    def test_a_full_disk_says_how_far_it_came(
        self, run: Lastword, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run("topics", "create", "t")
        create, created = DataRoot.create, []

        def create_some(root: DataRoot, path: str) -> Any:
            created.append(path)
            if len(created) > 1:
                raise StorageError(path, "no space left; free some and try again")
            return create(root, path)

        monkeypatch.setattr(DataRoot, "create", create_some)
        lines = "".join(f"k{i}\t{'x' * 9_000_000}\n" for i in range(4))
        error = run("produce", "t", stdin=lines).error
        assert "the first 2 record(s) are appended, the rest is not: " in str(error)
        assert "no space left" in str(error)
        monkeypatch.undo()
        assert len(run("consume", "t").out.splitlines()) == 2

    def test_json_there_and_back(self, run: Lastword) -> None:
        for name in ("one", "two"):
            run("topics", "create", name, "--partitions", "3")
        lines = [
            {"key": "a", "value": "1", "timestamp": 5, "headers": {"h": "x"}},
            {"key": {"base64": "/w=="}, "value": None, "partition": 2},
            {"key": "c", "value": {"street": "Höhe 1"}, "headers": [["h", None], ["h", "2"]]},
        ]
        stdin = "\n".join(json.dumps(line) for line in lines)
        run("produce", "one", "--format", "json", stdin=stdin)
        out = run("consume", "one", "--format", "json").out
        rows = {json.dumps(r["key"]): r for r in map(json.loads, out.splitlines())}
        assert rows['"a"']["timestamp"] == 5
        assert rows['"a"']["headers"] == [["h", "x"]]
        assert rows['{"base64": "/w=="}']["partition"] == 2
        assert rows['"c"']["value"] == '{"street":"Höhe 1"}'
        run("produce", "two", "--format", "json", stdin=out)
        again = run("consume", "two", "--format", "json").out
        fields = ("key", "value", "timestamp", "headers")

        def facts(text: str) -> list[list[Any]]:
            rows = map(json.loads, text.splitlines())
            return sorted(([r.get(f) for f in fields] for r in rows), key=str)

        assert facts(again) == facts(out)

    @pytest.mark.parametrize(
        ("words", "stdin", "problem"),
        [
            (
                [],
                "a\t1\nnokey\n",
                "line 2 is refused, the 1 record(s) before it are appended: no sep",
            ),
            (["--format", "json"], "{\n", "line 1 is refused"),
            (["--format", "json"], "[1]\n", 'appended: give an object with "key" and "value"'),
            (["--format", "json"], '{"key": "a", "value": 1, "headers": 5}', "headers are an obj"),
            (["--format", "json"], '{"key": {"base64": 5}, "value": 1}', "line 1 is refused"),
            (["--format", "json"], '{"key": "a", "value": 1, "headers": ["ab"]}', "headers are"),
            (["--format", "json"], '{"value": ' + "[" * 99_999 + "}", "line 1 is refused"),
            (["--format", "json"], '{"key": "a", "value": 1, "partition": "0"}', "partition is a"),
            (
                ["--format", "json"],
                '{"key": "a", "value": 1, "headers": {"\\ud800": ""}}',
                "surrog",
            ),
            (["--format", "json"], '{"value": 1, "kee": 2}\n', "unknown field 'kee'"),
            (["--format", "json"], '{"value": "x"}\n', "every record needs a key"),
        ],
    )
    def test_bad_lines(self, run: Lastword, words: list[str], stdin: str, problem: str) -> None:
        run("topics", "create", "t")
        done = run("produce", "t", *words, stdin=stdin)
        assert problem in str(done.error)
        if "1 record" in problem:
            assert run("consume", "t").out == "a\t1\n"

    def test_limits_and_places(self, run: Lastword) -> None:
        run("topics", "create", "t", "--partitions", "2")
        run("produce", "t", "--partition", "1", stdin="a\t1\nb\t2\nc\t3\n")
        assert run("consume", "t", "--max-messages", "2").out == "a\t1\nb\t2\n"
        assert run("consume", "t", "--max-messages", "0").out == ""
        assert run("consume", "t", "--partition", "0").out == ""
        assert run("consume", "t", "--partition", "1", "--offset", "3").out == ""
        assert "beyond log end" in str(
            run("consume", "t", "--partition", "1", "--offset", "9").error
        )
        assert "no partition 7" in str(run("consume", "t", "--partition", "7").error)
        assert run("consume", "t", "--offset", "1").code == 2
        assert run("consume", "t", "--max-messages", "-1").code == 2
        assert run("consume", "t", "--max-messages", "9" * 20).code == 2
        assert "no topic 'nope'" in str(run("produce", "nope").error)
        both = ["--partition", "1", "--offset", "1", "--from-beginning"]
        assert run("consume", "t", *both).code == 2

    def test_a_time_beyond_the_calendar(self, run: Lastword) -> None:
        run("topics", "create", "t", "--config", f"message.timestamp.after.max.ms={2**62}")
        line = json.dumps({"key": "a", "value": "1", "timestamp": 2**61})
        run("produce", "t", "--format", "json", stdin=line)
        assert f"{2**61} ms" in run("topics", "describe", "t").out

    def test_follow(self, run: Lastword, tmp_path: Path) -> None:
        """A real process that prints what is appended while it runs, until it is interrupted."""
        run("topics", "create", "t")
        run("produce", "t", stdin="a\told\n")
        store = str(tmp_path / "store")
        command = [sys.executable, "-m", "lastword", "consume", "t", "--store", store, "--follow"]
        everything = subprocess.Popen([*command, "--from-beginning"], stdout=subprocess.PIPE)
        assert everything.stdout is not None
        assert everything.stdout.readline() == b"a\told\n"
        limited = subprocess.Popen([*command, "--max-messages", "1"], stdout=subprocess.PIPE)
        while limited.poll() is None:  # it starts at the end, whenever that is
            run("produce", "t", stdin="b\tnew\n")
            time.sleep(0.1)
        assert limited.communicate()[0] == b"b\tnew\n"
        assert everything.stdout.readline() == b"b\tnew\n"
        everything.send_signal(signal.SIGINT)
        assert everything.wait() == 130


class TestUpkeep:
    def test_expire_and_gc(self, run: Lastword) -> None:
        run("topics", "create", "t", "--config", "cleanup.policy=delete",
            "--config", "retention.bytes=0", "--config", "file.delete.delay.ms=0")  # fmt: skip
        assert run("expire").out == "nothing to expire\n"
        run("produce", "t", stdin="a\t1\n")
        assert "would expire" in run("expire", "--dry-run").out
        assert run("expire", "t", "--json").json[0]["log_start"] == 1
        assert run("gc", "--dry-run").out.splitlines()[-1].startswith("would delete 1 file(s)")
        assert [f["kind"] for f in run("gc", "--json").json] == ["retired"]
        assert run("gc").out == "deleted 0 file(s), 0 bytes\n"

    def test_check(self, run: Lastword, tmp_path: Path) -> None:
        run("topics", "create", "t")
        run("produce", "t", stdin="a\t1\n")
        sound = run("check")
        assert (sound.code, sound.out.split(" in ")[0]) == (0, "no problem(s)")
        with lastword.open(tmp_path / "store") as store:
            path = live_paths(store.topic("t"))[0]
            os.remove(store.base.root.full(path))
        broken = run("check")
        assert broken.code == 1
        assert "missing" in broken.out
        assert run("check", "--quick", "--json").json["problems"][0]["kind"] == "missing"

    def test_durations(self, run: Lastword) -> None:
        run("topics", "create", "t")
        assert run("gc", "--orphans-older-than", "7d").code == 0
        assert run("gc", "--orphans-older-than", "soon").code == 2


def test_demo(run: Lastword) -> None:
    shown = run("demo").out
    assert "offset 5  1001 → Paper Road 21" in shown
    assert "active" in shown


class TestMain:
    """Exit codes and errors, of the real program."""

    @staticmethod
    def call(*words: str, store: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lastword", *words],
            capture_output=True,
            text=True,
            env={**os.environ, "LASTWORD_STORE": store},
            check=False,
        )

    def test_an_error_is_one_line_and_exit_code_1(self, tmp_path: Path) -> None:
        done = self.call("topics", "list", store=str(tmp_path / "nowhere"))
        assert (done.returncode, done.stdout) == (1, "")
        assert (
            done.stderr
            == f"error: NotAStoreError: {tmp_path}/nowhere: no store is there; 'lastword topics create' makes one, as lastword.open does\n"
        )

    def test_verbose_shows_the_traceback(self, tmp_path: Path) -> None:
        done = self.call("-v", "topics", "list", store=str(tmp_path / "nowhere"))
        assert done.returncode == 1
        assert "Traceback" in done.stderr

    @pytest.mark.parametrize("words", ["consume t", "produce [/x]", "produce t"])
    def test_closed_and_full_outputs(self, tmp_path: Path, words: str) -> None:
        lastword.open(tmp_path / "s").create_topic("t").append([("k", "v")])
        for outside in (">/dev/full", ">&-", "<&-", "--null-marker $(printf '\\377')"):
            done = subprocess.run(
                f"{sys.executable} -m lastword {words} --store {tmp_path}/s {outside}",
                shell=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert "Traceback" not in done.stderr, outside
            assert done.returncode in (0, 1, 2)

    def test_no_store_at_all(self) -> None:
        done = self.call("topics", "list")
        assert done.returncode == 1
        assert "give its URL (--store; in Spark the option store), or set" in done.stderr

    def test_usage_is_exit_code_2(self) -> None:
        assert self.call("topics", "crate").returncode == 2

    def test_version(self) -> None:
        assert self.call("--version").stdout == f"{lastword.__version__}\n"

    def test_a_reader_that_has_gone_is_no_error_to_shout_about(self, tmp_path: Path) -> None:
        store = lastword.open(tmp_path / "store")
        store.create_topic("t").append([("k", "x" * 1000)] * 1000)
        done = subprocess.run(
            f"{sys.executable} -m lastword consume t --store {tmp_path}/store | head -1",
            shell=True,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""

    def test_it_is_what_is_installed(self) -> None:
        assert main.__module__ == "lastword.cli"
