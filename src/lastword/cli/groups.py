"""lastword groups list|describe|reset|delete"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from lastword.cli.options import AsJson, DryRun, Partition, StoreUrl, TopicName, opened
from lastword.cli.render import show_json, show_line, show_table
from lastword.words import in_time

app = typer.Typer(
    help="Consumer groups: what they have committed, their lag, their members.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="The group.")]


@app.command("list")
def list_groups(store: StoreUrl = None, as_json: AsJson = False) -> None:
    """List all groups."""
    with opened(store) as opened_store:
        found = [opened_store.group(name).describe() for name in opened_store.groups()]
    rows: list[dict[str, Any]] = [
        {
            "name": g.name,
            "topics": sorted({p.topic for p in g.partitions}),
            "members": len(g.members),
            "lag": sum(p.lag.records for p in g.partitions),
        }
        for g in found
    ]
    if as_json:
        show_json(rows)
    elif not rows:
        show_line("no consumer groups")
    else:
        cells = [(r["name"], ", ".join(r["topics"]), r["members"], r["lag"]) for r in rows]
        show_table(["group", "topics", "members", "lag, records"], cells)


@app.command()
def describe(name: Name, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Show a group: committed offsets, lag in offsets and in records, who reads what."""
    with opened(store) as opened_store:
        found = opened_store.group(name).describe()
    if as_json:
        show_json(found)
        return
    by = {m.id: m.by for m in found.members}
    rows = [
        (
            p.topic,
            p.partition,
            p.committed,
            p.lag.log_end,
            p.lag.offsets,
            p.lag.records,
            "" if p.committed_ms is None else in_time(p.committed_ms),
            by.get(p.member or "", ""),
        )
        for p in found.partitions
    ]
    columns = ["topic", "partition", "committed", "log end", "lag", "lag, records", "at", "member"]
    show_table(columns, rows, title=f"group {name}: {len(found.members)} member(s)")


@app.command()
def reset(
    name: Name,
    topic: TopicName,
    partition: Partition = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To log start.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To log end.")] = False,
    to_offset: Annotated[
        int | None, typer.Option(show_default=False, help="To this offset.")
    ] = None,
    to_datetime: Annotated[
        datetime | None,
        typer.Option(show_default=False, help="To the first record since then; in UTC."),
    ] = None,
    dry_run: DryRun = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Set what a group has committed. It must have no members; a new group is made."""
    goals = [
        goal
        for goal in (
            "earliest" if to_earliest else None,
            "latest" if to_latest else None,
            to_offset,
            None if to_datetime is None else to_datetime.replace(tzinfo=UTC),
        )
        if goal is not None
    ]
    if len(goals) != 1:
        raise typer.BadParameter(
            "say where to: one of --to-earliest, --to-latest, --to-offset, --to-datetime"
        )
    with opened(store) as opened_store:
        group = opened_store.group(name)
        done = group.reset(topic, goals[0], partition=partition, dry_run=dry_run)
    if as_json:
        show_json(done)
        return
    title = f"{'would reset' if dry_run else 'reset'} group {name}"
    rows = [(r.topic, r.partition, r.before, r.after) for r in done]
    show_table(["topic", "partition", "before", "after"], rows, title=title)


@app.command()
def delete(name: Name, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Forget a group and what it has committed. It must have no members."""
    with opened(store) as opened_store:
        opened_store.group(name).delete()
    if as_json:
        show_json({"name": name, "deleted": True})
    else:
        show_line(f"deleted group {name}")
