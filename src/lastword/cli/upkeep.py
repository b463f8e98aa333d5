"""lastword expire|gc|check"""

from __future__ import annotations

from typing import Annotated

import typer

from lastword.cli.options import AsJson, DryRun, StoreUrl, milliseconds, opened
from lastword.cli.render import bytes_progress, show_json, show_line, show_table
from lastword.words import in_bytes

OrphanAge = Annotated[
    str,
    typer.Option(
        "--orphans-older-than",
        help="Files that no commit took are orphans from this age on (30s, 10m, 24h, 7d).",
    ),
]


def expire(
    topics: Annotated[
        list[str] | None, typer.Argument(show_default=False, help="The topics; all if none.")
    ] = None,
    dry_run: DryRun = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Drop old segments of topics whose cleanup.policy has delete."""
    with opened(store) as opened_store:
        expired = opened_store.expire(*(topics or []), dry_run=dry_run)
    if as_json:
        show_json(expired)
    elif not expired:
        show_line("nothing to expire")
    else:
        show_table(
            ["topic", "partition", "segments", "records", "size", "log start", "reason"],
            [
                (
                    e.topic,
                    e.partition,
                    e.segments,
                    e.records,
                    in_bytes(e.bytes),
                    e.log_start,
                    e.reason,
                )
                for e in expired
            ],
            title="would expire" if dry_run else "expired",
        )


def gc(
    orphans_older_than: OrphanAge = "24h",
    dry_run: DryRun = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Delete the bytes of retired files whose grace is over, and orphans."""
    with opened(store) as opened_store:
        files = opened_store.gc(orphan_age_ms=milliseconds(orphans_older_than), dry_run=dry_run)
    if as_json:
        show_json(files)
        return
    for file in files:
        show_line(f"{file.kind}  {in_bytes(file.bytes):>10}  {file.path}")
    verb = "would delete" if dry_run else "deleted"
    show_line(f"{verb} {len(files)} file(s), {in_bytes(sum(f.bytes for f in files))}")


def check(
    quick: Annotated[
        bool, typer.Option("--quick", help="Compare sizes and offsets; do not read the records.")
    ] = False,
    orphans_older_than: OrphanAge = "24h",
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Compare the catalog with the files: missing, corrupt, orphaned, wrong counts, overlaps."""
    age_ms = milliseconds(orphans_older_than)
    with opened(store) as opened_store, bytes_progress("checking") as bar:
        total = sum(topic.bytes for topic in opened_store.summaries())
        task = bar.add_task("check", total=total)
        report = opened_store.check(
            quick=quick, orphan_age_ms=age_ms, progress=lambda n: bar.advance(task, n)
        )
    if as_json:
        show_json(report)
    else:
        if report.problems:
            rows = [(p.kind, p.where, p.detail) for p in report.problems]
            show_table(["problem", "where", "detail"], rows)
        show_line(
            f"{len(report.problems) or 'no'} problem(s) in {report.topics} topic(s), "
            f"{report.files} file(s), {report.records} records, {in_bytes(report.bytes)}"
            + (f"; {report.staged} young file(s) await a commit" if report.staged else "")
        )
    if not report.is_clean:
        raise typer.Exit(1)
