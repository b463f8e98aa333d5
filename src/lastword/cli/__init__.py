"""The command line: `lastword …`. A command parses, calls one function, and renders the value."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from lastword import __version__
from lastword.cli import (
    cleaning,
    configs,
    demo,
    groups,
    mirror,
    publish,
    records,
    state,
    topics,
    ui,
    upkeep,
)
from lastword.cli.render import errors
from lastword.errors import LastwordError

app = typer.Typer(
    name="lastword",
    help="Kafka's compacted topics on plain files, cleaned by Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=False,
)
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(groups.app, name="groups")
for command in (
    records.produce,
    records.consume,
    state.latest,
    state.get,
    state.changes,
    state.erase,
    cleaning.clean,
    cleaning.cleaner,
    cleaning.why,
    cleaning.passes,
    cleaning.metrics,
    cleaning.warm_up,
    mirror.mirror,
    publish.publish,
    upkeep.expire,
    upkeep.gc,
    upkeep.check,
    ui.ui,
    demo.demo,
):
    app.command()(command)


_settings = {"verbose": False}


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit()


@app.callback()
def root(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the traceback of an error.")
    ] = False,
    version: Annotated[  # noqa: ARG001
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    _settings["verbose"] = verbose


def main() -> None:
    """Run the command line: exit 0 done, 1 our error (one line), 2 usage, 130 interrupted."""
    for name in ("stdin", "stdout"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115
    try:
        app()
    except LastwordError as error:
        if _settings["verbose"]:
            raise
        _say(error)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone; nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # of standard input or output: a full disk, a closed pipe
        if _settings["verbose"]:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _say(error)


def _say(error: Exception) -> None:
    """The error in one line, and exit code 1."""
    errors.print(f"[bold red]error:[/] {error.__class__.__name__}: ", end="")
    errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
    sys.exit(1)
