"""lastword topics create|list|describe|delete|add-partitions"""

from __future__ import annotations

from typing import Annotated

import typer

from lastword.cli.options import AsJson, DryRun, StoreUrl, opened, pairs
from lastword.cli.render import show_json, show_line, show_table
from lastword.description import TopicDescription
from lastword.model import Segment
from lastword.words import in_bytes, in_time

app = typer.Typer(help="Create, list, describe, delete topics.", no_args_is_help=True)

KEEP = "keep for ever"  # the empty cleanup.policy

Name = Annotated[str, typer.Argument(help="The topic's name.")]


@app.command()
def create(
    name: Name,
    partitions: Annotated[int, typer.Option(help="How many partitions.")] = 1,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", help="A setting, KEY=VALUE; again for more. See: configs alter."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if it is there already.")
    ] = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic; the store too, if it is not there."""
    with opened(store, create=True) as opened_store:
        is_new = name not in opened_store.topics()
        topic = opened_store.create_topic(
            name, partitions, pairs(config or []), if_not_exists=if_not_exists
        )
        if as_json:
            show_json({"name": name, "created": is_new, "partitions": topic.partitions})
        elif is_new:
            policy = topic.config.policy or KEEP
            show_line(f"created topic {name}: {partitions} partition(s), {policy}")
        else:
            show_line(f"topic {name} exists already")


@app.command("list")
def list_topics(store: StoreUrl = None, as_json: AsJson = False) -> None:
    """List all topics."""
    with opened(store) as opened_store:
        found = opened_store.summaries()
    if as_json:
        show_json(found)
        return
    show_table(
        ["topic", "partitions", "records", "size", "policy"],
        [
            (t.name, t.partitions, t.records, in_bytes(t.bytes), t.cleanup_policy or KEEP)
            for t in found
        ],
    )


@app.command()
def describe(
    names: Annotated[list[str], typer.Argument(help="The topics.")],
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show the anatomy of topics: partitions, offsets, segments."""
    with opened(store) as opened_store:
        found = [opened_store.topic(name).describe() for name in names]
    if as_json:
        show_json(found)
        return
    for description in found:
        show_anatomy(description)


@app.command()
def release(name: Name, store: StoreUrl = None) -> None:
    """Make a mirror of a Kafka topic an ordinary topic, which takes appends."""
    with opened(store) as opened_store:
        opened_store.topic(name).release()
    show_line(f"topic {name} is no longer a mirror")


@app.command()
def pause(name: Name, store: StoreUrl = None) -> None:
    """Let the cleaner leave a topic alone: no passes, no retention, until it is resumed."""
    with opened(store) as opened_store:
        opened_store.topic(name).pause()
    show_line(f"topic {name} is paused")


@app.command()
def resume(name: Name, store: StoreUrl = None) -> None:
    """Let the cleaner take a paused topic up again."""
    with opened(store) as opened_store:
        opened_store.topic(name).resume()
    show_line(f"topic {name} is resumed")


@app.command()
def delete(
    name: Name, dry_run: DryRun = False, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    """Delete a topic. Its bytes go after file.delete.delay.ms, by gc."""
    with opened(store) as opened_store:
        topic = opened_store.topic(name)
        description = topic.describe()
        if not dry_run:
            topic.delete()
    if as_json:
        sizes = {"records": description.records, "bytes": description.bytes}
        show_json({"name": name, "deleted": not dry_run, **sizes})
        return
    verb = "would delete" if dry_run else "deleted"
    show_line(f"{verb} topic {name}: {description.records} records, {in_bytes(description.bytes)}")


@app.command()
def add_partitions(
    name: Name,
    count: Annotated[int, typer.Argument(help="How many partitions it shall have.")],
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Grow a topic. Keys may land in other partitions from then on."""
    with opened(store) as opened_store:
        opened_store.topic(name).add_partitions(count)
    if as_json:
        show_json({"name": name, "partitions": count})
    else:
        show_line(
            f"topic {name} has {count} partitions; keys may land in other partitions from now on"
        )


def show_anatomy(topic: TopicDescription) -> None:
    """A topic's partitions and segments, as tables."""
    show_line(
        f"topic {topic.name}: {len(topic.partitions)} partition(s), {topic.records} records, "
        f"{in_bytes(topic.bytes)}, policy {_policy(topic)}"
    )
    if topic.source is not None:
        show_line(f"mirrors {topic.source.topic} of Kafka cluster {topic.source.cluster}")
    if topic.paused_ms is not None:
        show_line(f"paused since {in_time(topic.paused_ms)}")
    for p in topic.partitions:
        bounds = f"log start {p.log_start}, first dirty {p.first_dirty}, log end {p.log_end}"
        if not p.segments:
            show_line(f"partition {p.partition}: {bounds}, no records")
            continue
        rows = [
            (
                s.base,
                s.last_offset,
                s.records,
                s.tombstones,
                s.files,
                s.bytes,
                in_time(s.max_ms),
                _section(s, p.first_dirty),
            )
            for s in p.segments
        ]
        show_table(
            [
                "segment",
                "last offset",
                "records",
                "tombstones",
                "files",
                "bytes",
                "newest record",
                "section",
            ],
            rows,
            title=f"partition {p.partition}: {bounds}",
        )


def _section(segment: Segment, first_dirty: int) -> str:
    if segment.is_active:
        return "active"
    return "clean" if segment.last_offset < first_dirty else "dirty"


def _policy(topic: TopicDescription) -> str:
    return next(s.value for s in topic.settings if s.key == "cleanup.policy") or KEEP
