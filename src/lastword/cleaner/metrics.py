"""Kafka's cleaner metrics, under their own names, from what the catalog knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lastword.catalog import cleaning, queries
from lastword.cleaner.choose import Asked, decisions_for
from lastword.foundation import Foundation


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
    decisions = decisions_for(base, topics, Asked(retry=False))
    failed = [d for d in decisions if d.state.row.failures]
    others = [
        d for d in decisions if not d.state.row.failures and not d.state.row.is_claimed(now_ms)
    ]
    last = cleaning.last_round(base.catalog)
    seen_ms, dead = cleaning.cleaners_seen(base.catalog, now_ms)
    ratio = max((d.standing.dirty_ratio for d in others), default=0)
    recopied = sum(p.bytes_written for p in last) / max(1, sum(p.bytes_in for p in last))
    seconds = max((sum(p.seconds.values()) for p in last), default=0)
    delay_ms = max((p.delay_ms for p in last), default=0)
    fill = max((p.map_fill for p in last), default=0)
    stuck = sum(d.standing.cleanable_bytes for d in failed)
    silence_ms = -1 if seen_ms is None else max(0, now_ms - seen_ms)
    # fmt: off
    yield "max-dirty-percent", int(100 * ratio), "Dirty ratio of the dirtiest partition, in percent; not of claimed and of failed ones."
    yield "cleaner-recopy-percent", int(100 * recopied), "Bytes written of the bytes that the passes of the last round covered, in percent."
    yield "max-clean-time-secs", int(seconds), "How long the longest pass of the last round took."
    yield "max-compaction-delay-secs", delay_ms // 1000, "How overdue, by max.compaction.lag.ms, the most overdue partition of the last round was."
    yield "max-buffer-utilization-percent", int(100 * fill), "How full the fullest map of last offsets of the last round was, in percent."
    yield "uncleanable-partitions-count", len(failed), "Partitions whose last pass failed; they are tried again, each time later."
    yield "uncleanable-bytes", stuck, "Cleanable bytes of those partitions."
    yield "time-since-last-run-ms", silence_ms, "Since any cleaner was last seen; -1 if none ever was."
    yield "dead-worker-count", dead, "Cleaners that vanished without having stopped, in the last seven days."
    # fmt: on
