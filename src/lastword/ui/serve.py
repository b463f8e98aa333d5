"""Serve the page, and open it in a browser."""

from __future__ import annotations

import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from types import FrameType

import uvicorn

from lastword.errors import InvalidArgumentError
from lastword.store import Store
from lastword.ui.app import make_app
from lastword.ui.cleanings import NewRunner
from lastword.ui.guard import Access

_GRACE_S = 5  # for answers that are under way


def serve(
    store: Store,
    access: Access,
    port: int,
    new_runner: NewRunner,
    started: Callable[[str], None],
) -> None:
    """Serve until interrupted. `started` is called with the address, when it answers."""
    if not access.is_loopback and access.password is None:
        raise InvalidArgumentError(
            f"{access.host} can be reached from other machines: set a password in "
            "LASTWORD_UI_PASSWORD, or bind to 127.0.0.1"
        )
    listener = _listening(access.host, port)
    host = f"[{access.host}]" if ":" in access.host else access.host
    address = f"http://{host}:{listener.getsockname()[1]}/"
    app = make_app(store, access, new_runner)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = _Server(config, lambda: started(address), app.state.parts.scans.end)
    server.run(sockets=[listener])


def open_browser(address: str, folder: str | None) -> None:
    """Open it; with a folder, by a private file in it that leads there.

    A token must not stand on a command line, where all see it. In a thread: some browsers do not
    return before they are closed.
    """
    if folder is not None:
        door = Path(folder) / "lastword.html"
        door.touch(mode=0o600)
        door.write_text(f'<meta http-equiv="refresh" content="0; url={escape(address)}">')
        address = door.as_uri()
    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


class _Server(uvicorn.Server):
    """Tells when it answers, and when it is told to end; then it returns, so that all is tidied up."""

    def __init__(
        self, config: uvicorn.Config, started: Callable[[], None], ending: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_started, self._on_ending = started, ending

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_ending()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {s: signal.signal(s, self.handle_exit) for s in (signal.SIGINT, signal.SIGTERM)}
        yield
        for number, handler in before.items():
            signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        problem = f"cannot listen there: {error.strerror}; give another --host or --port"
        raise InvalidArgumentError(f"{host}:{port}: {problem}") from error
    return listener
