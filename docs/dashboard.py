"""Write the Grafana dashboard: `docs/generate.py` does, to docs/monitoring/grafana.json."""

from __future__ import annotations

import json
from typing import Any

_ROWS: tuple[tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...], ...] = (
    (
        ("stat", "Since a cleaner was seen", "ms", (("lastword_time_since_last_run_ms", ""),)),
        ("stat", "Failed partitions", "none", (("lastword_uncleanable_partitions_count", ""),)),
        ("stat", "Partitions that are due", "none", (("sum(lastword_topic_due_partitions)", ""),)),
        ("stat", "Dirtiest partition", "percent", (("lastword_max_dirty_percent", ""),)),
        ("stat", "Bytes in all topics", "bytes", (("sum(lastword_topic_bytes)", ""),)),
        ("stat", "Topics", "none", (("lastword_topics", ""),)),
    ),
    (
        ("timeseries", "Size by topic", "bytes", (("topk(10, lastword_topic_bytes)", "{{topic}}"),)),
        ("timeseries", "Dirty ratio by topic", "percentunit", (("topk(10, lastword_topic_dirty_ratio)", "{{topic}}"),)),
    ),
    (
        ("timeseries", "Passes", "ops", (("sum by (outcome) (rate(lastword_passes_total[5m]))", "{{outcome}}"),)),
        ("timeseries", "How long passes take", "s", (
            ("histogram_quantile(0.5, rate(lastword_pass_seconds_bucket[1h]))", "median"),
            ("histogram_quantile(0.95, rate(lastword_pass_seconds_bucket[1h]))", "95 %"),
        )),
    ),
    (
        ("timeseries", "Records removed", "ops", (("rate(lastword_removed_records_total[5m])", "{{reason}}"),)),
        ("timeseries", "The cleaner's bytes", "Bps", (("rate(lastword_cleaner_bytes_total[5m])", "{{what}}"),)),
    ),
    (
        ("timeseries", "Tombstones by topic", "none", (("topk(10, lastword_topic_tombstones)", "{{topic}}"),)),
        ("timeseries", "Fullest map of last offsets", "percent", (("lastword_max_buffer_utilization_percent", ""),)),
    ),
)  # fmt: skip


def dashboard() -> str:
    """The dashboard as Grafana imports it; it asks for the Prometheus to use."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in _ROWS:
        width, height = 24 // len(row), 4 if row[0][0] == "stat" else 8
        for i, (kind, title, unit, targets) in enumerate(row):
            panels.append(
                {
                    "id": len(panels) + 1,
                    "type": kind,
                    "title": title,
                    "datasource": {"type": "prometheus", "uid": "${datasource}"},
                    "gridPos": {"x": width * i, "y": y, "w": width, "h": height},
                    "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                    "targets": [
                        {"refId": "ABCDEF"[n], "expr": expr, "legendFormat": legend or "__auto"}
                        for n, (expr, legend) in enumerate(targets)
                    ],
                }
            )
        y += height
    source = {
        "name": "datasource",
        "type": "datasource",
        "query": "prometheus",
        "label": "Prometheus",
    }
    found = {
        "title": "lastword",
        "uid": "lastword",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }
    return json.dumps(found, indent=2) + "\n"
