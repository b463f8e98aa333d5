"""The web page, in this process and as a server; and a browser to look at it."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.testclient import TestClient

from lastword.jobs.runner import Progress
from lastword.store import Store
from lastword.testing import InProcess
from lastword.ui.app import make_app
from lastword.ui.cleanings import NewRunner
from lastword.ui.guard import TOKEN_HEADER, Access
from tests.waiting import until

TOKEN = "the-token"
OPEN = Access(token=TOKEN)
WITH_TOKEN = {TOKEN_HEADER: TOKEN}
SCREENSHOTS = Path(__file__).parent.parent / ".cache" / "screenshots"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)  # fmt: skip
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def in_process(_progress: Progress) -> InProcess:
    """What cleanings run on, where Spark is not what is tested."""
    return InProcess()


def client(store: Store, access: Access = OPEN) -> TestClient:
    """Who asks the page, as a program of this machine."""
    app = make_app(store, access, in_process)
    return TestClient(app, base_url="http://127.0.0.1:8383", follow_redirects=False)


@contextmanager
def served(
    store: Store, access: Access = OPEN, new_runner: NewRunner = in_process
) -> Iterator[str]:
    """The page, served; its address."""
    app = make_app(store, access, new_runner)
    config = uvicorn.Config(
        app, port=0, log_level="warning", access_log=False, timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def cleaned(web: TestClient, topic: str, **asked: object) -> dict[str, Any]:
    """What became of a cleaning that was asked for."""
    started = web.post(f"/api/topics/{topic}/clean", json=asked, headers=WITH_TOKEN)
    assert started.status_code == 202

    def now() -> dict[str, Any]:
        found: dict[str, Any] = web.get(f"/api/cleanings/{started.json()['id']}").json()
        return found

    until(lambda: now()["state"] not in ("waiting", "running"))
    return now()


def screenshot_path(name: str) -> str:
    """Where pictures of pages are kept, for people to look at."""
    os.makedirs(SCREENSHOTS, exist_ok=True)
    return str(SCREENSHOTS / f"{name}.png")
