"""Commands as they are typed, and what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

from lastword.cli import app
from lastword.errors import LastwordError


@dataclass(frozen=True)
class Run:
    """What a command said."""

    code: int
    out: str
    error: LastwordError | None = None

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Lastword = Callable[..., Run]


def on_store(url: str) -> Lastword:
    """Run commands on this store."""

    def call(*words: str, stdin: str | bytes = "") -> Run:
        done = CliRunner().invoke(app, list(words), input=stdin, env={"LASTWORD_STORE": url})
        error = done.exception if isinstance(done.exception, LastwordError) else None
        if done.exception and not error and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Run(done.exit_code, done.stdout_bytes.decode(), error)

    return call
