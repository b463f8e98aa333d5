"""Kafka's cleaner metrics, under their own names, from what the catalog knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lastword.catalog import cleaning, queries
from lastword.cleaner.run import Asked, decisions_for
from lastword.foundation import Foundation
from lastword.passes import Pass

_RECENT = 10_000  # passes in which the last round is looked for


@dataclass(frozen=True)
class Gauge:
    """One metric. `name` is Kafka's."""

    name: str
    value: float
    sentence: str

    @property
    def prometheus_name(self) -> str:
        return "lastword_" + self.name.replace("-", "_")


def gauges(base: Foundation) -> list[Gauge]:
    """All of them, now."""
    return [Gauge(*row) for row in _rows(base)]


def as_prometheus(found: list[Gauge]) -> str:
    """The gauges as Prometheus reads them."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client import Gauge as Metric

    registry = CollectorRegistry()
    for gauge in found:
        Metric(gauge.prometheus_name, gauge.sentence, registry=registry).set(gauge.value)
    return generate_latest(registry).decode()


def _rows(base: Foundation) -> Iterator[tuple[str, float, str]]:
    now_ms = base.clock()
    topics = [t for t in queries.topics(base.catalog) if t.config.is_compact]
    decisions = decisions_for(base, topics, Asked(retry=False), 1)
    failed = [d for d in decisions if d.state.row.failures]
    others = [
        d for d in decisions if not d.state.row.failures and not d.state.row.is_claimed(now_ms)
    ]
    last = _last_round(cleaning.passes(base.catalog, limit=_RECENT))
    seen_ms, dead = cleaning.cleaners_seen(base.catalog, now_ms)
    read, written = sum(p.bytes_read for p in last), sum(p.bytes_written for p in last)
    yield (
        "max-dirty-percent",
        int(100 * max((d.standing.dirty_ratio for d in others), default=0)),
        "Dirty ratio of the dirtiest partition that no cleaner works on, in percent.",
    )
    yield (
        "cleaner-recopy-percent",
        int(100 * written / max(1, read)),
        "Bytes written of bytes read by the passes of the last round, in percent.",
    )
    yield (
        "max-clean-time-secs",
        int(max((sum(p.seconds.values()) for p in last), default=0)),
        "How long the longest pass of the last round took.",
    )
    yield (
        "max-compaction-delay-secs",
        max((p.delay_ms for p in last), default=0) // 1000,
        "How overdue, by max.compaction.lag.ms, the most overdue partition of the last round was.",
    )
    yield (
        "max-buffer-utilization-percent",
        int(100 * max((p.map_fill for p in last), default=0)),
        "How full the fullest map of last offsets of the last round was, in percent.",
    )
    yield (
        "uncleanable-partitions-count",
        len(failed),
        "Partitions whose last pass failed; they are tried again, each time later.",
    )
    yield (
        "uncleanable-bytes",
        sum(d.standing.cleanable_bytes for d in failed),
        "Cleanable bytes of those partitions.",
    )
    yield (
        "time-since-last-run-ms",
        -1 if seen_ms is None else max(0, now_ms - seen_ms),
        "Since any cleaner last looked for work; -1 if none ever has.",
    )
    yield (
        "dead-worker-count",
        dead,
        "Cleaners that vanished without having stopped, in the last seven days.",
    )


def _last_round(passes: list[Pass]) -> list[Pass]:
    """The passes of the newest round: one cleaner starts all of them at the same moment."""
    newest = (passes[0].by, passes[0].started_ms) if passes else None
    return [p for p in passes if (p.by, p.started_ms) == newest]
