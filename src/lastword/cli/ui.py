"""lastword ui"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from typing import Annotated

import typer

from lastword.cli.options import SparkConf, SparkMaster, StoreUrl, opened, pairs
from lastword.cli.render import errors, show_line
from lastword.errors import InvalidArgumentError


def ui(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Where to listen; 0: any.")] = 8383,
    host: Annotated[
        str,
        typer.Option(
            help="The address to bind to; other than loopback needs a password, in the "
            "environment variable LASTWORD_UI_PASSWORD."
        ),
    ] = "127.0.0.1",
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Do not open the page in a browser.")
    ] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show everything, change nothing.")
    ] = False,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="A temporary store with examples; begins with the scene."),
    ] = False,
    master: SparkMaster = None,
    spark_conf: SparkConf = None,
    store: StoreUrl = None,
) -> None:
    """Open the web page: topics, the log's anatomy, passes, records, why; metrics at /metrics.

    Reading is open to this machine. Changes need the token that is printed, in the address.
    """
    from lastword.ui.cleanings import on_spark
    from lastword.ui.guard import Access
    from lastword.ui.serve import open_browser, serve

    password = os.environ.get("LASTWORD_UI_PASSWORD")  # on a command line, all would see it
    if password == "":
        raise InvalidArgumentError("LASTWORD_UI_PASSWORD is empty; leave it out, or set one")
    access = Access(host, password, read_only)

    def started(root: str) -> None:
        token = "" if read_only else f"#token={access.token}"
        address = f"{root}{'scene' if demo else ''}{token}"
        show_line(f"{address}\n{_READ_ONLY if read_only else _TOKEN}")
        if not no_browser:
            open_browser(address, None if read_only else folder)

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lastword-ui-"))
        if demo:
            from lastword.ui.demo import fill

            store = f"{folder}/store"
            errors.print("making the examples …")
            fill(store)
        opened_store = stack.enter_context(opened(store))
        new_runner = on_spark(master, pairs(spark_conf or []))
        serve(opened_store, access, port, new_runner, started)
    show_line("stopped")


_READ_ONLY = "changes are refused (--read-only)"
_TOKEN = "the part after # is the token: with it, the page may change things. Ctrl-C ends it"
