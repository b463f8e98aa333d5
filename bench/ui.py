"""How long pages take, of a store with many topics and files; records only of one topic."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import lastword
from lastword.catalog import schema
from lastword.clock import system_clock
from lastword.store import Store
from lastword.topic import Topic

TOPICS, PARTITIONS, FILES = 1_000, 4, 100_000
_LARGE = 20_000  # of these files are one topic's
_PASSES = 20  # of each partition
_MANY_PASSES = 25_000  # of each partition of one topic: three weeks, cleaned all day
_PAGES = {
    "overview": "/",
    "overview, by dirty ratio": "/?sort=-dirty",
    "overview, filtered": "/?filter=7",
    "a topic": "/topics/topic-0007",
    "a topic with 20,000 files": "/topics/topic-0000",
    "a topic with 100,000 passes": "/topics/topic-0008",
    "passes": "/passes",
    "a pass": "/passes/77",
    "settings": "/settings",
    "metrics": "/metrics",
    "records": "/topics/changes/records?from=500000",
    "a record": "/topics/changes/records/0/500000",
    "a key": "/topics/changes/records?view=key&key=key-77",
    "latest view": "/topics/changes/records?view=latest",
    "latest view, from the middle": "/topics/changes/records?view=latest&from=500000",
}
_RECORDS, _KEYS, _APPENDS = 1_000_000, 100_000, 100  # of the topic whose files are there
_ASKED = 21


def ui(folder: Path) -> dict[str, str]:
    """Pages of 1,000 topics, 4,000 partitions, 100,000 files and 180,000 passes: median, worst of 21."""
    with lastword.open(folder / "store") as store:
        _fill(store)
        _append(store.create_topic("changes"))
    words = ("ui", "--port", "0", "--no-browser", "--read-only", "--store", str(folder / "store"))
    command = [sys.executable, "-m", "lastword", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        address = page.stdout.readline().strip().rstrip("/")
        found = {
            "the first look": f"{_took_ms(address):.0f} ms",
            "metrics, the first time": f"{_took_ms(f'{address}/metrics'):.0f} ms",
            "latest view, the first time": f"{_took_ms(address + _PAGES['latest view']):.0f} ms",
        }
        for name, path in _PAGES.items():
            found[name] = _measured(address + path)
        page.terminate()
    return found


def _measured(url: str) -> str:
    times = []
    for _ in range(_ASKED):
        time.sleep(0.15)  # as visitors do: the overview is made anew meanwhile
        times.append(_took_ms(url))
    times.sort()
    size = len(_get(url))
    return f"{times[len(times) // 2]:.0f} ms, {times[-1]:.0f} ms at the worst, {size / 1000:.0f} kB"


def _took_ms(url: str) -> float:
    began = time.perf_counter()
    _get(url)
    return 1000 * (time.perf_counter() - began)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        return bytes(answer.read())


def _append(topic: Topic) -> None:
    """Records that no pass has covered, each key ten times."""
    size = _RECORDS // _APPENDS
    for start in range(0, _RECORDS, size):
        topic.append((f"key-{n % _KEYS}", f"value {n}") for n in range(start, start + size))


def _fill(store: Store) -> None:
    """Rows as appends and passes leave them; the files they name are not there."""
    now_ms = system_clock()
    with store.base.catalog.write() as tx:
        names = [{"name": f"topic-{n:04}", "created_ms": now_ms, "source": None} for n in range(TOPICS)]  # fmt: skip
        tx.execute(schema.topic.insert(), names)
        places = [(t, p) for t in range(1, TOPICS + 1) for p in range(PARTITIONS)]
        each = (FILES - _LARGE) // (len(places) - PARTITIONS)
        for topic_id, number in places:
            count = _LARGE // PARTITIONS if topic_id == 1 else each
            clean = 100 * (count * 2 // 3)
            bounds = {
                "log_end": 100 * count,
                "first_dirty": clean,
                "active_base": 100 * (count - 1),
            }
            row = {"topic_id": topic_id, "partition": number, "active_bytes": 50_000}
            tx.execute(schema.partition.insert(), {**row, **bounds, "active_first_ms": now_ms})
            tx.execute(schema.file.insert(), _files(topic_id, number, count, now_ms))
            passes = _MANY_PASSES if topic_id == 9 else _PASSES
            tx.execute(schema.pass_.insert(), _passes(topic_id, number, passes, clean, now_ms))


def _files(topic_id: int, number: int, count: int, now_ms: int) -> list[dict[str, object]]:
    return [
        {
            "topic_id": topic_id,
            "partition": number,
            "segment_base": 500 * (n // 5),
            "base_offset": 100 * n,
            "last_offset": 100 * n + 99,
            "records": 100,
            "bytes": 50_000,
            "tombstones": 3,
            "null_keys": 0,
            "first_ms": now_ms,
            "max_ms": now_ms,
            "footer_crc": 0,
            "path": f"{topic_id}/{number}/{n}.parquet",
            "added_commit": 1,
        }
        for n in range(count)
    ]


def _passes(
    topic_id: int, number: int, count: int, clean: int, now_ms: int
) -> list[dict[str, object]]:
    zeros = dict.fromkeys(
        ("delay_ms", "files_kept", "files_rewritten", "files_merged", "files_written", "keys"), 0
    )
    return [
        {
            **zeros,
            "topic_id": topic_id,
            "partition": number,
            "commit_id": 1,
            "cause": "dirty ratio 0.91 above 0.5",
            "by": "bench:1",
            "started_ms": now_ms - 3_600_000 * (count - n),
            "start": clean * n // count,
            "end": clean * (n + 1) // count,
            "horizon_ms": now_ms,
            "dirty_ratio": 0.9,
            "records_in": 10_000,
            "records_out": 1_000,
            "removed": {"obsolete": 9_000, "tombstone": 0, "null key": 0},
            "bytes_in": 1_000_000,
            "bytes_out": 100_000,
            "bytes_read": 500_000,
            "bytes_written": 100_000,
            "map_fill": 0.1,
            "shards": 1,
            "seconds": {"mark": 1.0, "sweep": 1.0, "commit": 0.01},
            "jobs": [1, 2],
            "first_tombstone": clean * n // count if n % 4 == 0 and count - n < 150 else None,
        }
        for n in range(count)
    ]
