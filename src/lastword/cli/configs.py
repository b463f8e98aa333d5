"""lastword configs describe|alter"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated

import typer

from lastword.cli.options import AsJson, StoreUrl, opened, pairs
from lastword.cli.render import show_json, show_line, show_table
from lastword.config import Setting, describe_store, describe_topic
from lastword.errors import InvalidConfigError

app = typer.Typer(
    help="Describe and alter the settings of a topic, or of the store.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Topic = Annotated[
    str | None,
    typer.Argument(
        show_default=False, help="The topic; leave it out for the store's own settings."
    ),
]


@app.command()
def describe(
    topic: Topic = None,
    overridden: Annotated[
        bool, typer.Option("--overridden", help="Only those that differ from their default.")
    ] = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show settings: value, default, who set it, and what it means."""
    with opened(store) as opened_store:
        found = (opened_store.topic(topic) if topic else opened_store).settings()
    shown = [s for s in found if s.is_overridden or not overridden]
    if as_json:
        show_json([{**asdict(s), "is_overridden": s.is_overridden} for s in shown])
        return
    rows = [
        (s.key, s.value, s.default, s.source if s.is_overridden else "", s.sentence) for s in shown
    ]
    show_table(["setting", "value", "default", "set by", "meaning"], rows)


def _known_settings() -> str:
    """The settings, for --help: made from the table, as the docs are."""

    def listed(settings: Iterable[Setting]) -> str:
        return "".join(
            f"\n\n**{s.key}** ({s.bounds}; default {s.default}): {s.sentence}" for s in settings
        )

    topic, store = listed(describe_topic({}, {})), listed(describe_store({}))
    return f"Settings of a topic:{topic}\n\nSettings of the store:{store}"


@app.command(epilog=_known_settings())
def alter(
    topic: Topic = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE; again for more.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", help="KEY: back to its default; again for more.")
    ] = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Set or remove settings, all or none."""
    changes: dict[str, str | None] = {**pairs(set_ or []), **dict.fromkeys(remove or [])}
    if both := set(pairs(set_ or [])) & set(remove or []):
        raise InvalidConfigError(f"{min(both)}: give --set or --remove, not both")
    if not changes:
        raise InvalidConfigError("nothing to alter; give --set KEY=VALUE or --remove KEY")
    with opened(store) as opened_store:
        (opened_store.topic(topic) if topic else opened_store).alter(changes)
    if as_json:
        show_json({"topic": topic, "altered": changes})
        return
    for key, value in changes.items():
        show_line(f"{key} is back at its default" if value is None else f"{key} = {value}")
