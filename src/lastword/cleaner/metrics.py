"""Metrics: Kafka's cleaner gauges under their own names, topics, and what all passes did.

All of it is from the catalog, so whichever process is asked gives the same numbers.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from sqlalchemy import Row

from lastword.catalog import cleaning
from lastword.catalog.engine import Catalog
from lastword.cleaner.overview import Overview, TopicOverview
from lastword.passes import BELOW_LOG_START, REASONS, outcome

MOST_TOPICS = 200  # that have series of their own: the largest; the others are added up
OTHERS = "(others)"  # which no topic can be called
_SECONDS = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)
_BYTES = (1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11)


@dataclass(frozen=True)
class Gauge:
    """One of Kafka's. `name` is Kafka's."""

    name: str
    value: float
    sentence: str

    @property
    def prometheus_name(self) -> str:
        return "lastword_" + self.name.replace("-", "_")


def gauges(seen: Overview) -> list[Gauge]:
    """Kafka's cleaner gauges."""
    return [Gauge(*row) for row in _rows(seen)]


@dataclass
class Totals:
    """What passes did, added up."""

    seconds: _Histogram = field(default_factory=lambda: _Histogram(_SECONDS))
    bytes_covered: _Histogram = field(default_factory=lambda: _Histogram(_BYTES))
    outcomes: Counter[str] = field(default_factory=lambda: Counter(done=0, failed=0, abandoned=0))
    removed: Counter[str] = field(
        default_factory=lambda: Counter(dict.fromkeys((*REASONS, BELOW_LOG_START), 0))
    )
    bytes: Counter[str] = field(default_factory=lambda: Counter(read=0, written=0, freed=0))

    def add(self, done: Row[Any]) -> None:
        self.outcomes[outcome(done.error)] += 1
        if done.error:
            return
        self.seconds.add(sum(done.seconds.values()))
        self.bytes_covered.add(done.bytes_in)
        self.removed.update(done.removed)
        self.bytes["read"] += done.bytes_read
        self.bytes["written"] += done.bytes_written
        self.bytes["freed"] += max(0, done.bytes_in - done.bytes_out)


class PassTotals:
    """The totals of all passes. Those that were counted are not read again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: set[int] = set()
        self._last_id = 0
        self._totals = Totals()

    def count(self, catalog: Catalog) -> Totals:
        """Add the passes that have come since."""
        with self._lock:
            late = self._last_id - 1_000  # which may be committed after those that began later
            for done in cleaning.sums_after(catalog, late):
                if done.id not in self._counted:
                    self._totals.add(done)
                    self._counted.add(done.id)
                    self._last_id = max(self._last_id, done.id)
            self._counted = {i for i in self._counted if i > self._last_id - 1_000}
            return deepcopy(self._totals)  # which nobody adds to while it is read


def as_prometheus(seen: Overview, totals: Totals) -> str:
    """All metrics, as Prometheus reads them."""
    registry = CollectorRegistry()
    registry.register(_Metrics([*_kafkas(seen), *_of_topics(seen.topics), *_of_passes(totals)]))
    return generate_latest(registry).decode()


class _Metrics(Collector):
    def __init__(self, found: Sequence[Metric]) -> None:
        self._found = found

    def collect(self) -> Sequence[Metric]:
        return self._found


@dataclass
class _Histogram:
    bounds: Sequence[float]
    counts: Counter[float] = field(default_factory=Counter)
    sum: float = 0.0

    def add(self, value: float) -> None:
        self.sum += value
        self.counts[next((b for b in self.bounds if value <= b), float("inf"))] += 1

    def metric(self, name: str, sentence: str) -> Metric:
        buckets, total = [], 0
        for bound in (*self.bounds, float("inf")):
            total += self.counts[bound]
            buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(total)))
        return HistogramMetricFamily(name, sentence, buckets=buckets, sum_value=self.sum)


def _kafkas(seen: Overview) -> Iterator[Metric]:
    for gauge in gauges(seen):
        yield GaugeMetricFamily(gauge.prometheus_name, gauge.sentence, value=gauge.value)


def _of_topics(topics: Sequence[TopicOverview]) -> Iterator[Metric]:
    by_size = sorted(topics, key=lambda t: t.bytes, reverse=True)
    shown, rest = by_size[:MOST_TOPICS], by_size[MOST_TOPICS:]
    yield GaugeMetricFamily("lastword_topics", "How many topics there are.", value=len(topics))
    # fmt: off
    for name, sentence, of, together in (
        ("bytes", "Size of the log.", lambda t: t.bytes, sum),
        ("records", "Records in the log.", lambda t: t.records, sum),
        ("tombstones", "Tombstones in the log.", lambda t: t.tombstones, sum),
        ("dirty_ratio", "Dirty ratio of its dirtiest partition.", lambda t: t.dirty_ratio, max),
        ("min_cleanable_dirty_ratio", "Above it, a partition is cleaned.", lambda t: t.threshold, max),
        ("due_partitions", "Partitions that the cleaner would clean now.", lambda t: t.eligible, sum),
        ("last_pass_timestamp_seconds", "When its last pass that was done began; 0 if none was.", lambda t: (t.last_pass_ms or 0) / 1000, max),
        ("failed_partitions", "Partitions whose last pass failed.", lambda t: t.failed, sum),
        ("overdue_seconds", "By max.compaction.lag.ms, its most overdue partition.", lambda t: t.overdue_ms / 1000, max),
        ("paused", "1 if the cleaner leaves it alone.", lambda t: int(t.paused_ms is not None), sum),
    ):
        metric = GaugeMetricFamily(f"lastword_topic_{name}", f"{sentence} By topic; beyond the {MOST_TOPICS} largest, {together.__name__} of the others.", labels=["topic"])
        for topic in shown:
            metric.add_metric([topic.name], of(topic))
        if rest:
            metric.add_metric([OTHERS], together(of(t) for t in rest))
        yield metric
    # fmt: on


def _of_passes(totals: Totals) -> Iterator[Metric]:
    yield totals.seconds.metric(
        "lastword_pass_seconds",
        "How long passes took, mark to commit; those of a round share its two jobs, and each counts them whole.",
    )
    yield totals.bytes_covered.metric("lastword_pass_bytes", "Bytes that passes covered.")
    for name, sentence, label, counts in (
        ("lastword_passes", "Passes, by what became of them.", "outcome", totals.outcomes),
        ("lastword_removed_records", "Records removed, by reason.", "reason", totals.removed),
        ("lastword_cleaner_bytes", "Bytes read, written and freed.", "what", totals.bytes),
    ):
        metric = CounterMetricFamily(name, sentence, labels=[label])
        for what, count in counts.items():
            metric.add_metric([what], count)
        yield metric


def _rows(seen: Overview) -> Iterator[tuple[str, float, str]]:
    last = seen.last_round
    decisions = [d for d in seen.decisions if d.state.topic.config.is_compact]
    failed = [d for d in decisions if d.state.row.failures]
    others = [
        d for d in decisions if not d.state.row.failures and not d.state.row.is_claimed(seen.at_ms)
    ]
    ratio = max((d.standing.dirty_ratio for d in others), default=0)
    recopied = sum(p.bytes_written for p in last) / max(1, sum(p.bytes_in for p in last))
    seconds = max((sum(p.seconds.values()) for p in last), default=0)
    delay_ms = max((p.delay_ms for p in last), default=0)
    fill = max((p.map_fill for p in last), default=0)
    stuck = sum(d.standing.cleanable_bytes for d in failed)
    silence_ms = -1 if seen.seen_ms is None else max(0, seen.at_ms - seen.seen_ms)
    # fmt: off
    yield "max-dirty-percent", int(100 * ratio), "Dirty ratio of the dirtiest partition, in percent; not of claimed and of failed ones."
    yield "cleaner-recopy-percent", int(100 * recopied), "Bytes written of the bytes that the passes of the last round covered, in percent."
    yield "max-clean-time-secs", int(seconds), "How long the longest pass of the last round took."
    yield "max-compaction-delay-secs", delay_ms // 1000, "How overdue, by max.compaction.lag.ms, the most overdue partition of the last round was."
    yield "max-buffer-utilization-percent", int(100 * fill), "How full the fullest map of last offsets of the last round was, in percent."
    yield "uncleanable-partitions-count", len(failed), "Partitions whose last pass failed; they are tried again, each time later."
    yield "uncleanable-bytes", stuck, "Cleanable bytes of those partitions."
    yield "time-since-last-run-ms", silence_ms, "Since any cleaner was last seen; -1 if none ever was."
    yield "dead-worker-count", seen.dead_cleaners, "Cleaners that vanished without having stopped, in the last seven days."
    # fmt: on
