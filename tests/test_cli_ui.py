"""lastword ui, as it is typed."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvicorn

import lastword
from lastword.errors import InvalidArgumentError, NotAStoreError
from lastword.ui.guard import TOKEN_HEADER
from lastword.ui.serve import _Server
from tests.commands import Lastword
from tests.notation import shown, write
from tests.waiting import until

Start = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the page on a port of its own; the process, and the address that it printed."""
    started = []

    def call(*words: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "lastword", "ui", "--port", "0", *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield call
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end(start: Start, tmp_path: Path, how: int) -> None:
    lastword.open(tmp_path / "store").close()
    process, address = start("--no-browser", "--store", str(tmp_path / "store"))
    page, _, token = address.partition("#token=")
    assert len(token) > 20
    with urllib.request.urlopen(page) as answer:
        assert "There are no topics yet" in answer.read().decode()
    process.send_signal(how)
    out, errors = process.communicate(timeout=150)
    assert (process.returncode, out.splitlines()[-1], errors) == (0, "stopped", "")


def test_what_is_under_way_is_abandoned_when_it_is_ended(start: Start, tmp_path: Path) -> None:
    with lastword.open(tmp_path / "store") as store:
        topic = store.create_topic("t")
        write(topic, "a=1 a=2 | b=1*")
        store.alter({"log.cleaner.io.max.bytes.per.second": 1})  # it would take half an hour
        process, address = start("--no-browser", "--store", str(tmp_path / "store"))
        page, _, token = address.partition("#token=")
        headers = {"content-type": "application/json", TOKEN_HEADER: token}
        asked = urllib.request.Request(f"{page}api/topics/t/clean", b"{}", headers)
        urllib.request.urlopen(asked).close()
        until(lambda: store.plan("t")[0].state.row.claim is not None)
        time.sleep(2)  # Spark is at it
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=150)
        assert (process.returncode, out.splitlines()[-1]) == (0, "stopped")
        assert store.plan("t")[0].state.row.claim is None
        assert shown(topic) == "a=1 a=2 | b=1*"


def test_a_signal_ends_scans_before_it_ends_the_page() -> None:
    ended: list[bool] = []
    server = _Server(uvicorn.Config(""), lambda: None, lambda: ended.append(server.should_exit))
    server.handle_exit(signal.SIGTERM, None)
    assert (ended, server.should_exit) == ([False], True)


def test_the_demo_begins_with_the_scene_and_leaves_nothing(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process, address = start("--no-browser", "--demo", "--read-only")
    assert address.endswith("/scene")  # and no token
    with urllib.request.urlopen(address.replace("scene", "api/topics")) as answer:
        assert b"shop.prices" in answer.read()
    scene = urllib.request.Request(address.replace("scene", "api/scene"), b"{}", {"content-type": "application/json"})  # fmt: skip
    urllib.request.urlopen(scene).close()
    assert len(list(tmp_path.glob("lastword-*"))) == 2
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=150)
    assert list(tmp_path.glob("lastword-*")) == []


def test_what_cannot_be(run: Lastword, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(run("ui", "--no-browser").error, NotAStoreError)
    run("topics", "create", "t")
    refused = run("ui", "--no-browser", "--host", "0.0.0.0").error
    assert isinstance(refused, InvalidArgumentError)
    assert "LASTWORD_UI_PASSWORD" in str(refused)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = run("ui", "--no-browser", "--port", str(taken.getsockname()[1])).error
    assert "give another --host or --port" in str(busy)
    monkeypatch.setenv("LASTWORD_UI_PASSWORD", "x")
    assert "cannot listen there" in str(run("ui", "--no-browser", "--host", "203.0.113.1").error)
    monkeypatch.setenv("LASTWORD_UI_PASSWORD", "")
    assert "is empty" in str(run("ui", "--no-browser").error)


def test_the_token_stands_on_no_command_line(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All users of a machine see the words that a browser is started with."""
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/asked.part && mv {tmp_path}/asked.part {tmp_path}/asked\n')  # fmt: skip
    script.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(script))
    lastword.open(tmp_path / "store").close()
    process, address = start("--store", str(tmp_path / "store"))
    while not (tmp_path / "asked").exists():
        assert process.poll() is None
        time.sleep(0.05)
    asked = (tmp_path / "asked").read_text().strip()
    door = Path(asked.removeprefix("file://"))
    assert address.partition("#")[2] not in asked
    assert address in door.read_text()
    assert door.stat().st_mode & 0o077 == 0
