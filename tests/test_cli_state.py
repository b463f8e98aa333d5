"""latest, get, changes, erase and groups, as they are typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import lastword
from lastword.testing import InProcess
from tests.commands import Lastword

BOOK = "1001\tPrivet\n1002\tBaker\n1003\tMilkman\n1002\tJump\n1001\tPaper\n"


@pytest.fixture
def users(run: Lastword) -> Lastword:
    run("topics", "create", "users")
    run("produce", "users", stdin=BOOK)
    return run


class TestLatest:
    def test_formats(self, users: Lastword, tmp_path: Path) -> None:
        assert users("latest", "users").out == "1003\tMilkman\n1002\tJump\n1001\tPaper\n"
        offsets = users("latest", "users", "--show-offsets", "--separator", " ").out
        assert offsets.splitlines() == ["0:2 1003 Milkman", "0:3 1002 Jump", "0:4 1001 Paper"]
        lines = users("latest", "users", "--format", "json").out.splitlines()
        assert json.loads(lines[0])["value"] == "Milkman"
        assert users("latest", "users", "--keys").out == "1003\n1002\n1001\n"
        assert users("latest", "users", "--keys", "--show-offsets").out.startswith("0:2\t1003\n")
        keys = users("latest", "users", "--keys", "--format", "json").out.splitlines()
        assert json.loads(keys[0])["key"] == "1003"
        assert "value" not in json.loads(keys[0])
        file = tmp_path / "state.parquet"
        users("latest", "users", "--format", "parquet", "--output", str(file))
        assert pq.read_table(file)["value"].to_pylist() == [b"Milkman", b"Jump", b"Paper"]
        users("latest", "users", "--output", str(tmp_path / "text"))
        assert (tmp_path / "text").read_text() == users("latest", "users").out
        assert users("latest", "users", "--format", "parquet").code == 2
        assert "not found" in str(users("latest", "users", "--output", "/no/such/file").error)

    def test_deleted_keys(self, users: Lastword) -> None:
        users("produce", "users", "--null-marker", "-", stdin="1003\t-\n")
        assert "1003" not in users("latest", "users").out
        text = users("latest", "users", "--deleted").out
        assert text.startswith("1003\tdeleted at 0:5\tvanishes not before the next pass")
        shown = json.loads(users("latest", "users", "--deleted", "--format", "json").out)
        assert (shown["key"], shown["vanishes_ms"]) == ("1003", None)
        assert users("latest", "users", "--deleted", "--keys").code == 2

    def test_an_empty_topic(self, run: Lastword) -> None:
        run("topics", "create", "t")
        assert run("latest", "t").out == ""


class TestGet:
    def test_a_value(self, users: Lastword) -> None:
        assert users("get", "users", "1002").out == "Jump\n"
        shown = users("get", "users", "1002", "--format", "json").json
        assert (shown["offset"], shown["value"]) == (3, "Jump")

    def test_none(self, users: Lastword) -> None:
        absent = users("get", "users", "1009")
        assert (absent.code, absent.out) == (1, "")
        assert users("get", "users", "1009", "--format", "json").json["value"] is None
        assert "no topic 'user'; did you mean 'users'" in str(users("get", "user", "1").error)

    def test_history(self, users: Lastword) -> None:
        assert (
            users("get", "users", "1001", "--history").out
            == "0:4\t1001\tPaper\n0:0\t1001\tPrivet\n"
        )
        lines = users("get", "users", "1002", "--history", "--format", "json").out.splitlines()
        assert [json.loads(line)["offset"] for line in lines] == [3, 1]


class TestChanges:
    def test_since(self, users: Lastword) -> None:
        users("produce", "users", "--null-marker", "-", stdin="1003\t-\n")
        done = users("changes", "users", "--since", "0:4")
        assert done.out == "1001\tPaper\n1003\tnull\n"
        assert users("changes", "users", "--since", "0:6").out == ""
        assert users("changes", "users").out.count("\n") == 3
        assert users("changes", "users", "--since", "4").code == 2
        assert "beyond log end" in str(users("changes", "users", "--since", "0:9").error)


class TestGroups:
    def test_consume_as_a_group(self, users: Lastword) -> None:
        assert users("groups", "list").out == "no consumer groups\n"
        first = users("consume", "users", "--group", "billing", "--max-messages", "2")
        assert first.out == "1001\tPrivet\n1002\tBaker\n"
        described = users("groups", "describe", "billing", "--json").json
        (partition,) = described["partitions"]
        assert (partition["committed"], partition["lag"]["records"]) == (2, 3)
        assert described["members"] == []
        assert "billing" in users("groups", "describe", "billing").out
        assert users("groups", "list", "--json").json == [
            {"name": "billing", "topics": ["users"], "members": 0, "lag": 3}
        ]
        assert "billing" in users("groups", "list").out
        assert users("consume", "users", "--group", "billing").out.count("\n") == 3
        assert users("consume", "users", "--group", "billing").out == ""
        assert users("consume", "users", "--group", "g", "--partition", "0").code == 2

    def test_a_member_that_is_told_to_end_leaves_its_group(
        self, users: Lastword, tmp_path: Path
    ) -> None:
        main = "import lastword.cli; lastword.cli.main()"
        words = ["consume", "users", "--group", "g", "--follow", "--from-beginning"]
        child = subprocess.Popen(
            [sys.executable, "-c", main, *words],
            env={**os.environ, "LASTWORD_STORE": str(tmp_path / "store")},
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        for _ in range(5):
            child.stdout.readline()
        child.terminate()
        assert child.wait() == 130
        child.stdout.close()
        assert users("groups", "describe", "g", "--json").json["members"] == []

    def test_reset_and_delete(self, users: Lastword) -> None:
        users("consume", "users", "--group", "billing")
        dry = users("groups", "reset", "billing", "users", "--to-earliest", "--dry-run", "--json")
        assert [(r["before"], r["after"]) for r in dry.json] == [(5, 0)]
        done = users("groups", "reset", "billing", "users", "--to-offset", "4")
        assert "reset group billing" in done.out
        assert users("consume", "users", "--group", "billing").out == "1001\tPaper\n"
        users("groups", "reset", "billing", "users", "--to-datetime", "2001-01-01T00:00:00")
        assert users("consume", "users", "--group", "billing").out.count("\n") == 5
        users("groups", "reset", "billing", "users", "--to-latest")
        assert users("groups", "reset", "billing", "users").code == 2
        both = users("groups", "reset", "billing", "users", "--to-latest", "--to-earliest")
        assert both.code == 2
        assert users("groups", "delete", "billing").out == "deleted group billing\n"
        assert "no consumer group 'billing'" in str(users("groups", "delete", "billing").error)
        assert "no consumer group" in str(users("groups", "describe", "billing").error)


class TestErase:
    def test_a_dry_run_and_what_is_wrong(self, users: Lastword, tmp_path: Path) -> None:
        done = users("erase", "users", "1001", "1009", "--dry-run")
        assert (
            "would erase 1 of 2 key(s) of users: 2 record(s), 1 tombstone(s) to append" in done.out
        )
        file = tmp_path / "keys"
        file.write_text("1001\n\n1002\n")
        assert (
            users("erase", "users", "--from", str(file), "--dry-run", "--json").json["found"] == 2
        )
        assert users("erase", "users").code == 2
        assert "not found" in str(users("erase", "users", "--from", "/no/such").error)

    def test_the_receipt(
        self, users: Lastword, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lastword.cli.state.SparkRunner", lambda *_: InProcess())
        done = users("erase", "users", "1001").out
        assert "erased 1 of 1 key(s) of users: 2 record(s), 1 tombstone(s) appended" in done
        assert "copies may remain in:" in done
        with lastword.open(tmp_path / "store") as store:
            assert [r.value for r in store.topic("users").history("1001")] == [None]
