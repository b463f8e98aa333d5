"""Options that several commands share."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from lastword.errors import InvalidConfigError
from lastword.opening import open_store
from lastword.store import Store

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="LASTWORD_STORE",
        show_default=False,
        help="The store: a folder, or postgresql://…",
    ),
]
TopicName = Annotated[str, typer.Argument(help="The topic.")]
Partition = Annotated[
    int | None, typer.Option(min=0, show_default=False, help="Only this partition.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
SparkMaster = Annotated[
    str | None,
    typer.Option(
        envvar="MASTER",
        show_default=False,
        help="Where Spark runs: local[2], spark://host:7077, …; else local, on all cores.",
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option("--spark-conf", help="A setting of Spark's, KEY=VALUE; again for more."),
]

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def opened(url: str | None, *, create: bool = False) -> Store:
    """The store that the option or the environment names."""
    return open_store(url, create=create)


def pairs(texts: list[str]) -> dict[str, str]:
    """`key=value` arguments as a dict."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidConfigError(f"{text!r} is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def milliseconds(text: str) -> int:
    """A duration such as 500ms, 30s, 10m, 24h or 7d."""
    match = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration; give 500ms, 30s, 10m, 24h or 7d")
    return int(match[1]) * _UNITS[match[2]]
