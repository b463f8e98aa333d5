"""The web page without a browser: what is drawn, who may do what, what is answered."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import threading
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from fastapi import HTTPException
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from starlette.testclient import TestClient

import lastword
from lastword.catalog import schema
from lastword.cleaner.choose import Asked, decisions_for
from lastword.cleaner.mark import mark
from lastword.cleaner.overview import Overview, overview
from lastword.cleaner.plan import Clean, Decision
from lastword.cleaner.run import Cleaner
from lastword.errors import InvalidArgumentError
from lastword.foundation import Foundation
from lastword.model import Segment
from lastword.passes import Pass
from lastword.store import Store
from lastword.testing import InProcess, ManualClock
from lastword.topic import Topic
from lastword.ui import cleanings, scene, scenes
from lastword.ui.anatomy import Point, Scale, picture
from lastword.ui.app import make_app
from lastword.ui.demo import fill
from lastword.ui.growth import growth
from lastword.ui.guard import TOKEN_HEADER, Access, is_loopback
from lastword.ui.serve import serve
from lastword.ui.values import MOST_CHARS, As, one_line, shown
from lastword.ui.watch import Watch
from tests.notation import clean, live_paths, write
from tests.soak import times
from tests.web import TOKEN, WITH_TOKEN, client, in_process, served

HOUR_MS = 3_600_000
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\"'&"


class TestValues:
    def test_what_they_look_like(self) -> None:
        assert shown(None).kind == "null"
        assert shown(b"").kind == "empty"
        assert shown(b"Paper Road 21").text == "Paper Road 21"
        assert shown(b'{"a": [1, "\xc3\xa9"]}').text == '{\n  "a": [\n    1,\n    "é"\n  ]\n}'
        assert shown(b"\xff\x00A").kind == "hex"
        assert shown(b"\xff\x00A").text == f"00000000  {'ff 00 41':<47}  ..A"

    def test_json_is_shown_as_it_was_written(self) -> None:
        written = b'{"a":1.10,"b":12345678901234567.89,"a":[],"c":{},"d":"\\ud800","e":"x, {y}"}'
        text = shown(written).text
        assert text.splitlines() == [
            "{",
            '  "a": 1.10,',
            '  "b": 12345678901234567.89,',
            '  "a": [],',
            '  "c": {},',
            '  "d": "\\ud800",',
            '  "e": "x, {y}"',
            "}",
        ]
        deep = shown(b"[" * 900 + b"]" * 900)
        assert (deep.kind, deep.is_cut, len(deep.text)) == ("json", True, MOST_CHARS)
        assert shown(b"[" * 9_999 + b"]" * 9_999).kind == "text"  # too deep to be read
        large = b"[" + b"1," * 40_000 + b"1]"
        assert shown(large).kind == "text"
        assert shown(large, most=1 << 20).kind == "json"  # on a page of its own

    @given(
        st.recursive(
            st.none() | st.text() | st.floats(allow_nan=False) | st.integers(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=20,
        )
    )
    def test_any_json(self, value: object) -> None:
        written = json.dumps([value], ensure_ascii=True)
        found = shown(written.encode(), most=1 << 20)
        assert found.kind == "json"
        assert json.loads(found.text) == [value]
        assert re.sub(r"\s", "", found.text) == re.sub(r"\s", "", written)

    def test_as_asked(self) -> None:
        assert shown(b'{"a":1}', As.TEXT).text == '{"a":1}'
        assert shown(b"abc", As.HEX).text.startswith("00000000  61 62 63")
        assert shown(b"\xffa", As.TEXT).text == "\\xffa"
        assert shown(b"12", As.JSON).kind == "text"  # a mere number gains nothing
        assert shown(b"[" * 100_000).kind == "text"  # no JSON, and no crash

    def test_large_ones_are_cut(self) -> None:
        cut = shown(b"x" * 5_000, most=100)
        assert (len(cut.text), cut.is_cut, cut.bytes) == (100, True, 5_000)
        assert shown(b"\xff" * 5_000, most=160).is_cut
        assert not shown(b"\xff" * 160, most=160).is_cut

    def test_what_turns_text_around_or_cannot_be_seen(self) -> None:
        assert shown("a\u202eb\x1b[2J".encode()).text == "a\\u202eb\\u001b[2J"
        assert one_line(b"a\nb") == "a\\nb"
        assert shown("x\u200by\ufeffz\u00ad".encode()).text == "x\\u200by\\ufeffz\\u00ad"
        for unseen in "\u3164\u115f\u034f\u2800\ufe0f\U000e0100\U0001d173":
            assert unseen not in one_line(f"admin{unseen}".encode())
        assert shown("Ünï ❤ 日本 \U0001f600".encode()).text == "Ünï ❤ 日本 \U0001f600"

    def test_of_what_is_large_only_the_beginning_is_looked_at(self) -> None:
        large = "é".encode() * 50_000_000
        tracemalloc.start()
        assert all(shown(large, how, most=601).is_cut for how in As)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1_000_000
        assert shown("xé".encode() * 1_000, most=3).text == "xéx"
        assert shown(b"x" * 10 + b"\xff", most=100).kind == "hex"
        assert shown("é".encode() * 10 + b"\xc3", most=1_000).kind == "hex"

    @given(st.binary(max_size=200), st.sampled_from(list(As)))
    def test_any_bytes(self, value: bytes, how: As) -> None:
        found = shown(value, how, most=50)
        assert found.bytes == len(value)
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", found.text)


def decision_of(topic: Topic) -> Decision:
    (found,) = decisions_for(topic._base, [topic.row], Asked())
    return found


class TestAnatomy:
    def test_sections_are_true_to_scale(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", config={"min.compaction.lag.ms": 1_000})
        write(topic, "a=1 a=2 a=3 b=∅")
        clock.advance(2_000)
        clean(topic)
        write(topic, "c=1 c=2")
        clock.advance(2_000)
        write(topic, "d=1 d=2 | e=1 e=2*")
        drawn = picture(decision_of(topic))
        assert [(b.section, b.x, b.width, b.records) for b in drawn.bars] == [
            ("clean", 0, 40, 2),
            ("dirty", 40, 20, 2),
            ("protected", 60, 20, 2),
            ("active", 80, 20, 2),
        ]
        assert [b.height for b in drawn.bars] == [30, 60, 60, 60]  # half of the first is gone
        assert [(p.name, p.offset, p.x) for p in drawn.points] == [
            ("log start", 0, 0),
            ("delete retention point", 3, 30),  # where the tombstone waits
            ("first dirty", 4, 40),
            ("first uncleanable", 6, 60),
            ("log end", 10, 100),
        ]
        clock.advance(90_000_000)
        points = [p.name for p in picture(decision_of(topic)).points]
        assert "delete retention point · first dirty" in points

    def test_log_start_in_the_middle_of_a_segment(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", config={"cleanup.policy": "delete"})
        write(topic, "a=1 b=1 c=1 d=1 | e=1 f=1*")
        topic.delete_records(0, before=2)
        first, last = picture(decision_of(topic)).bars
        assert (first.section, last.section) == ("kept", "active")  # where nothing is compacted
        assert (first.first, first.start, first.end, first.width) == (0, 2, 4, 50)
        assert (last.start, last.end, last.x) == (4, 6, 50)

    def test_by_bytes(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 | b=1*")
        topic.append([("c", os.urandom(50_000))])
        drawn = picture(decision_of(topic), Scale.BYTES)
        assert [b.section for b in drawn.bars] == ["dirty", "active"]
        assert drawn.bars[1].width > 90
        assert sum(b.width for b in drawn.bars) == pytest.approx(100)

    def test_an_empty_partition(self, local: Store, clock: ManualClock) -> None:
        drawn = picture(decision_of(local.create_topic("t")))
        assert drawn.bars == ()
        assert {p.offset for p in drawn.points} == {0}

    def test_many_narrow_segments_are_joined(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t")
        for n in range(40):
            write(topic, f"k{n}=1")
        topic.append([(f"k{n}", "2") for n in range(40_000)])
        drawn = picture(decision_of(topic))
        assert len(drawn.bars) == 2
        assert (drawn.bars[0].segments, drawn.bars[0].records) == (40, 40)

    def test_wide_segments_are_not(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1")
        for _ in range(2):
            topic.append([(f"k{n}", "1") for n in range(5_000)])
            topic.roll()
        drawn = picture(decision_of(topic))
        assert [b.segments for b in drawn.bars] == [1, 1, 1]

    def test_log_start_is_the_least(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", config={"cleanup.policy": "compact,delete"})
        write(topic, "a=1 a=∅ b=1")
        clean(topic)
        topic.delete_records(0, before=2)
        points = picture(decision_of(topic)).points
        assert min(p.offset for p in points) == 2

    def test_labels_do_not_overlap(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", config={"min.compaction.lag.ms": 1})
        write(topic, "a=1 b=∅")
        clock.advance(2)
        clean(topic)
        write(topic, "c=1 | d=1*")
        points = picture(decision_of(topic)).points
        assert len(points) > 3
        for row in {p.row for p in points}:
            extents = sorted(_extent(p) for p in points if p.row == row)
            assert all(end <= start for (_, end), (start, _) in pairwise(extents))


def _extent(point: Point) -> tuple[float, float]:
    width = 0.6 * len(f"{point.name} {point.offset}")  # percent, of a page of 1,000 px
    return (point.x - width, point.x) if point.is_right else (point.x, point.x + width)


END = 100  # offset, up to which passes have covered


def a_pass(at_ms: int, bytes_in: int, bytes_out: int, **values: Any) -> Pass:
    return Pass("t", values.pop("partition", 0), "", "", at_ms, 0, END, 0, bytes_in=bytes_in, bytes_out=bytes_out, **values)  # fmt: skip


def log(*sizes: int) -> dict[int, list[Segment]]:
    """Partitions of these sizes, which passes have covered."""
    return {n: [segment(0, size)] for n, size in enumerate(sizes)}


def segment(base: int, size: int, first_ms: int = 0, max_ms: int = 0) -> Segment:
    return Segment(base, base + 9, 1, 10, size, 0, first_ms, max_ms, is_active=base >= END)


class TestGrowth:
    def test_a_saw_with_compaction_a_slope_without(self) -> None:
        passes = [a_pass(10, 100, 20), a_pass(20, 70, 30)]
        found = growth(passes, log(50), since_ms=0, now_ms=30)
        assert found.at_ms == (0, 0, 10, 10, 20, 20, 30, 30)
        assert found.compacted == (0, 0, 100, 20, 70, 30, 50, 50)
        assert found.uncompacted == (0, 0, 100, 100, 150, 150, 170, 170)
        assert found.saved == pytest.approx(1 - 50 / 170)

    def test_partitions_are_added_up(self) -> None:
        passes = [
            a_pass(10, 100, 20),
            a_pass(20, 40, 40, partition=1),
            a_pass(15, 9, 0, error="no"),
        ]
        found = growth(passes, log(20, 40), since_ms=0, now_ms=20)
        assert found.compacted == (0, 0, 120, 40, 60, 60)  # the other one had 20 of 40 half-way
        assert found.uncompacted[-1] == 140

    def test_what_retention_drops_is_not_saved_by_compaction(self) -> None:
        found = growth([a_pass(10, 5_000, 5_000)], log(50), since_ms=0, now_ms=20)
        assert (found.uncompacted[-1], found.saved) == (50, 0)
        passes = [a_pass(10, 5_000, 5_000), a_pass(15, 100, 100)]
        assert growth(passes, log(100), since_ms=0, now_ms=20).uncompacted[-1] == 100

    def test_retention_drops_as_large_a_part_with_compaction_as_without(self) -> None:
        found = growth([a_pass(10, 1_000, 100)], log(50), since_ms=0, now_ms=20)
        assert found.uncompacted[-1] == 500
        assert found.saved == pytest.approx(0.9)
        assert growth([a_pass(10, 1_000, 100)], log(0), since_ms=0, now_ms=20).uncompacted[-1] == 0

    def test_what_the_last_pass_left_alone_did_not_come_all_at_once(self) -> None:
        rest = [
            segment(END, 60, first_ms=0, max_ms=20),
            segment(END + 10, 5, first_ms=15, max_ms=18),
        ]
        found = growth([a_pass(10, 100, 20)], {0: [segment(0, 20), *rest]}, since_ms=0, now_ms=20)
        assert found.at_ms == (0, 0, 10, 10, 20, 20)
        assert found.compacted == (0, 0, 130, 50, 85, 85)  # half of the 60 was there at the pass
        assert found.uncompacted == (0, 0, 130, 130, 165, 165)

    def test_many_passes_are_thinned(self) -> None:
        passes = [a_pass(10 * n, 100, 20) for n in range(1, 1_000)]
        found = growth(passes, log(20), since_ms=0, now_ms=10_000)
        assert len(found.at_ms) <= 250
        assert (found.at_ms[0], found.at_ms[-1]) == (0, 10_000)
        assert found.uncompacted[-1] == 100 + 998 * 80

    def test_only_the_last_passes_are_known(self) -> None:
        passes = [a_pass(10, 100, 20), a_pass(20, 50, 40, partition=1)]
        found = growth(passes, log(60, 40), since_ms=None, now_ms=30)
        assert found.at_ms == (10, 10, 20, 20, 30, 30)
        assert found.compacted == (150, 70, 90, 80, 100, 100)  # the other one had 50 before

    def test_a_topic_that_was_never_cleaned(self) -> None:
        found = growth([], log(7), since_ms=0, now_ms=5)
        assert (found.compacted, found.uncompacted, found.saved) == ((0, 0, 7, 7), (0, 0, 7, 7), 0)


@pytest.fixture
def users(local: Store) -> Topic:
    topic = local.create_topic("users", config={"min.cleanable.dirty.ratio": 0.9})
    write(topic, "a=1 a=2 b=1 | a=3 c=∅*")
    return topic


@pytest.fixture
def web(local: Store) -> TestClient:
    return client(local)


PAGES = (
    "/",
    "/?filter=use&sort=-bytes&page=2",
    "/new",
    "/passes",
    "/settings",
    "/scene",
    "/topics/users",
    "/topics/users?scale=bytes&partition=0&segment=0",
    "/topics/users/records",
    "/topics/users/records?view=latest",
    "/topics/users/records?view=key&key=a",
    "/topics/users/records/0/0",
    "/metrics",
)


class TestPages:
    @pytest.mark.parametrize("path", PAGES)
    def test_every_one_is_there(self, store: Store, path: str) -> None:
        write(store.create_topic("users"), "a=1 a=2 b=1 | a=3 c=∅*")
        answer = client(store).get(path)
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert not re.findall(r"""(?:src|href|action)="(?:https?:)?//""", answer.text)
        assert not re.findall(r"<[^>]* (?:style|on\w+)=", answer.text)  # the policy would drop it

    def test_topics_are_filtered_sorted_and_paged(self, web: TestClient, local: Store) -> None:
        for n in range(120):
            local.create_topic(f"t{n:03}")
        write(local.topic("t007"), "a=1*")
        assert re.findall(r'href="/topics/(t\d+)"', web.get("/").text) == [f"t{n:03}" for n in range(100)]  # fmt: skip
        second = web.get("/?page=2").text
        assert "page 2 of 2" in second
        assert re.findall(r'href="/topics/(t\d+)"', second)[0] == "t100"
        assert re.findall(r'href="/topics/(t\d+)"', web.get("/?sort=-records").text)[0] == "t007"
        assert re.findall(r'href="/topics/(t\d+)"', web.get("/?filter=T11").text) == [
            f"t11{n}" for n in range(10)
        ]

    def test_a_segment_that_was_clicked(self, web: TestClient, users: Topic) -> None:
        page = web.get("/topics/users?partition=0&segment=3").text
        assert "Segment 3" in page
        assert "offsets 3 to 4" in page
        assert "Segment" not in web.get("/topics/users?partition=0&segment=99").text
        assert "Segment" not in web.get("/topics/users?partition=1&segment=3").text

    def test_counting_survivors(self, web: TestClient, users: Topic) -> None:
        assert "count survivors<" in web.get("/topics/users").text
        answer = web.get("/api/topics/users/partitions/0/survivors")
        assert answer.json() == {"partition": 0, "log_end": 5, "segments": {"0": 1, "3": 2}}
        page = web.get("/topics/users").text
        assert "count survivors" not in page
        assert "1 would be left if all were cleaned" in page
        assert "3 of 5 records would be left if all were cleaned</small>" in page
        users.append([("d", "1")])
        page = web.get("/topics/users").text
        assert "3 of 6 records would be left if all were cleaned, counted up to offset 4" in page
        assert "count survivors again" in page
        web.get("/api/topics/users/partitions/0/survivors")
        assert "4 of 6 records would be left if all were cleaned<" in web.get("/topics/users").text
        clean(users)
        assert "count survivors<" in web.get("/topics/users").text

    def test_survivors_are_those_that_a_pass_leaves(
        self, web: TestClient, local: Store, clock: ManualClock
    ) -> None:
        topic = local.create_topic("t", config={"delete.retention.ms": 1_000})
        write(topic, "a=1 a=∅ b=1 | c=∅ b=2*")
        clean(topic)
        clock.advance(2_000)
        counted = web.get("/api/topics/t/partitions/0/survivors").json()["segments"]
        (done,) = clean(topic)
        assert done.removed["tombstone"] == 2
        assert sum(counted.values()) == done.records_out

    def test_counting_keys(self, web: TestClient, users: Topic, clock: ManualClock) -> None:
        assert "≤" in web.get("/topics/users").text
        answer = web.get("/api/topics/users/keys").json()
        assert answer == {"topic": "users", "keys": 2, "appended": 5, "at_ms": clock()}
        clean(users)  # which keys have a value is not changed by that
        assert "2 live keys" in " ".join(web.get("/topics/users").text.split())
        users.append([("d", "1")])
        page = web.get("/topics/users").text
        assert "≈ 3" in page
        assert "<small" in page[page.index("≈ 3") : page.index("live keys")]  # what was counted
        assert web.get("/api/topics/users/keys").json()["keys"] == 3
        users.alter({"cleanup.policy": "compact,delete"})
        users.delete_records(0, before=5)  # then it is not known any more
        page = web.get("/topics/users").text
        assert "<small" not in page[page.index("<h1>") : page.index("live keys")]

    def test_survivors_below_log_start(self, web: TestClient, local: Store) -> None:
        topic = local.create_topic("t", config={"cleanup.policy": "compact,delete"})
        write(topic, "a=1 a=2 b=1 c=1 d=1 | a=3*")
        topic.delete_records(0, before=3)
        asked = "/api/topics/t/partitions/0/survivors"
        assert web.get(asked).json()["segments"] == {"0": 2, "5": 1}
        clean(topic)
        topic.delete_records(0, before=4)
        assert sum(web.get(asked).json()["segments"].values()) == 2
        assert "2 records left, 1 offset given" not in web.get("/topics/t").text

    def test_survivors_after_a_pass_over_nothing_new(
        self, web: TestClient, local: Store, clock: ManualClock
    ) -> None:
        topic = local.create_topic("t", config={"delete.retention.ms": 10_000})
        write(topic, "a=1 a=∅ x=1")
        clean(topic)
        topic.alter({"delete.retention.ms": "1000"})
        write(topic, "b=1 b=∅ y=1")
        clean(topic)
        asked, counts = "/api/topics/t/partitions/0/survivors", []
        for ms in (2_000, 20_000):
            clock.advance(ms)
            assert clean(topic)[0].removed["tombstone"] == 1
            assert "count survivors" in web.get("/topics/t").text
            counts.append(sum(web.get(asked).json()["segments"].values()))
        assert counts == [3, 2]

    def test_survivors_of_files_that_a_pass_replaces_meanwhile(
        self, web: TestClient, users: Topic, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        users.alter({"file.delete.delay.ms": "0"})

        def too_late(*asked: Any) -> Any:
            monkeypatch.setattr("lastword.cleaner.verdicts.mark", mark)
            clean(users)
            local.gc()
            return mark(*asked)

        monkeypatch.setattr("lastword.cleaner.verdicts.mark", too_late)
        found = web.get("/api/topics/users/partitions/0/survivors")
        assert (found.status_code, sum(found.json()["segments"].values())) == (200, 3)

    def test_records_from_an_offset_and_beyond(self, web: TestClient, users: Topic) -> None:
        users.append([(f"k{n}", "v") for n in range(60)])
        page = web.get("/topics/users/records?from=5").text
        assert re.findall(r"/records/0/(\d+)\"", page) == [str(n) for n in range(5, 55)]
        assert "from=55" in page
        assert "offset 99 is beyond log end" in web.get("/topics/users/records?from=99").text
        assert web.get("/topics/users/records?partition=3").status_code == 404
        refused = web.get("/topics/users/records?from=-1")
        assert refused.status_code == 422
        assert refused.headers["content-type"].startswith("text/html")
        assert web.get("/topics/users/records?from=&partition=0&as=auto").status_code == 200

    def test_back_to_earlier_records(self, web: TestClient, users: Topic) -> None:
        def earlier(start: int) -> list[str]:
            return re.findall(r'from=(\d+)[^"]*" rel="prev"', web.get(f"/topics/users/records?from={start}").text)  # fmt: skip

        users.append([(f"k{n}", "v") for n in range(95)])
        assert (earlier(0), earlier(3), earlier(100)) == ([], ["0"], ["50"])
        users.append([("k1", "w")] * 300)
        clean(users)
        users.append([("k2", "w")])  # 96 records below 100, then none up to 399
        assert earlier(400) == ["51"]
        assert 'rel="prev"' not in web.get("/topics/users/records?view=latest&from=400").text

    def test_a_key_and_its_history(self, web: TestClient, users: Topic) -> None:
        page = web.get("/topics/users/records?view=key&key=a").text
        assert re.findall(r"/records/0/(\d+)\"", page) == ["3", "1", "0"]
        clean(users)
        page = web.get("/topics/users/records?view=key&key=61&keyas=hex").text
        assert "Whatever came before was removed by" in page
        assert "no record of this key" in web.get("/topics/users/records?view=key&key=zz").text
        assert "is not hex" in web.get("/topics/users/records?view=key&key=zz&keyas=hex").text
        assert "tombstone" in web.get("/topics/users/records?view=key&key=c").text

    def test_any_key_can_be_looked_up(self, web: TestClient, users: Topic) -> None:
        keys = [b"", b"\xff\x00", b"0x61", "zero\u200bwidth".encode(), b"a b&c=d", "ü".encode()]
        users.append([(key, "v") for key in keys])
        page = web.get("/topics/users/records?from=5").text
        links = re.findall(r'class="key" href="([^"]+)"', page)
        assert len(links) == len(keys)
        for n, link in enumerate(links, start=5):
            found = web.get(html.unescape(link)).text
            assert re.findall(r"/records/0/(\d+)\"", found) == [str(n)], link

    def test_keys_that_are_too_long_for_an_address(self, web: TestClient, users: Topic) -> None:
        users.append([("k" * 10_001, "v"), (b"\xff" * 5_000, "v"), ("k" * 2_000, "v")])
        page = web.get("/topics/users/records?from=5").text
        (link,) = re.findall(r'class="key" href="([^"]+)"', page)
        assert web.get(html.unescape(link)).status_code == 200
        assert "its history" not in web.get("/topics/users/records/0/5").text

    def test_whether_a_record_is_the_last_word(self, web: TestClient, users: Topic) -> None:
        def page(place: str) -> str:
            return web.get(f"/topics/users/records/{place}").text

        assert 'superseded by <a href="/topics/users/records/0/3">offset 3</a>' in page("0/1")
        assert "the last word on its key" in page("0/3")
        users.add_partitions(2)
        write(users, "a=9*", partition=1)
        assert 'superseded by <a href="/topics/users/records/1/0">1:0</a>' in page("0/3")

    def test_many_versions_of_a_key(self, web: TestClient, users: Topic) -> None:
        users.append([("many", str(n)) for n in range(300)])
        page = web.get("/topics/users/records?view=key&key=many").text
        assert len(re.findall(r"/records/0/(\d+)\"", page)) == 200
        assert "The newest 200 versions of this key; there are more" in page

    def test_null_is_not_always_a_tombstone(self, web: TestClient, local: Store) -> None:
        topic = local.create_topic("d", config={"cleanup.policy": "delete"})
        topic.append([(None, "v", None, (("h", None),))])
        page = web.get("/topics/d/records/0/0").text
        assert "tombstone" not in page
        assert page.count(">null<") == 2

    def test_numbers_that_cannot_be(self, web: TestClient, users: Topic) -> None:
        for path in ("/passes/99999999999999999999", "/passes/abc", "/topics/users/records/99999999999/0", "/?page=0"):  # fmt: skip
            assert web.get(path).status_code == 422, path

    def test_the_latest_view(self, web: TestClient, users: Topic) -> None:
        page = web.get("/topics/users/records?view=latest").text
        assert re.findall(r"/records/0/(\d+)\"", page) == ["2", "3"]
        page = web.get("/topics/users/records?view=latest&from=3").text
        assert re.findall(r"/records/0/(\d+)\"", page) == ["3"]

    def test_later_pages_of_the_latest_view_are_of_the_same_moment(
        self, web: TestClient, users: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And their keys are not scanned again."""

        def keys_of(page: str) -> list[str]:
            return re.findall(r"[?&;]key=([^&\"]*)", page)

        users.append([(f"k{n:03}", "v") for n in range(70)])
        first = web.get("/topics/users/records?view=latest").text
        (later,) = re.findall(r'href="([^"]+)" rel="next"', first)
        with monkeypatch.context() as patched:
            patched.setattr("lastword.log.latest.alive", None)
            assert web.get("/topics/users/records?view=latest").text == first
            users.append([("k069", None), ("k070", "v")])
            second = web.get("/topics/users/records" + html.unescape(later)).text
        assert keys_of(first) + keys_of(second) == ["b", "a", *(f"k{n:03}" for n in range(70))]
        assert "As it was when log end was 75" in second
        assert "As it was" not in first
        (now,) = re.findall(r'href="([^"]+)">As it is now', second)
        assert keys_of(web.get("/topics/users/records" + html.unescape(now)).text)[-2:] == ["k068", "k070"]  # fmt: skip
        again = web.get(
            "/topics/users/records" + html.unescape(later)
        ).text  # that is not known now
        assert keys_of(again) == [*keys_of(second)[:-1], "k070"]
        assert "As it was" not in again

    def test_a_latest_view_whose_files_have_gone_is_made_anew(
        self, web: TestClient, users: Topic, local: Store, clock: ManualClock
    ) -> None:
        before = web.get("/topics/users/records?view=latest&from=1").text
        clean(users)
        clock.advance(HOUR_MS)
        local.gc()
        after = web.get("/topics/users/records?view=latest&from=1&end=5")
        assert (after.status_code, after.text) == (200, before)

    def test_few_latest_views_are_kept(
        self, web: TestClient, users: Topic, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lastword.ui.latest_views._MOST_RECORDS", 7)  # those of users are 5
        write(local.create_topic("others"), "a=1 b=2*")
        for topic, known in (("users", 1), ("others", 2), ("users", 2)):
            web.get(f"/topics/{topic}/records?view=latest")
            assert len(web.app.state.parts.latest_views._known) == known  # type: ignore[attr-defined]
        local.topic("others").append([("c", "3")])
        web.get("/topics/others/records?view=latest")
        assert len(web.app.state.parts.latest_views._known) == 1  # type: ignore[attr-defined]

    def test_the_latest_view_of_keys_in_several_partitions(
        self, web: TestClient, users: Topic, clock: ManualClock
    ) -> None:
        users.add_partitions(8)
        clock.advance(1)
        users.append([("a", None), ("b", "2")])
        assert users.latest().to_dict() == {b"b": b"2"}
        found = []
        for number in range(8):
            page = web.get(f"/topics/users/records?view=latest&partition={number}").text
            found += re.findall(r"/records/(\d+)/(\d+)\"", page)
        (last,) = users.latest()
        assert found == [(str(last.partition), str(last.offset))]

    def test_few_scans_at_once(
        self, web: TestClient, users: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else some that nobody waits for would keep all pages from everybody."""
        monkeypatch.setattr("lastword.ui.scans._PATIENCE_S", 0)
        scanning = web.app.state.parts.scans  # type: ignore[attr-defined]
        scans = ("/api/topics/users/keys", "/api/topics/users/partitions/0/survivors", "/topics/users/records?view=latest", "/topics/users/records?view=key&key=a")  # fmt: skip
        with scanning.one(), scanning.one():
            for path in scans:
                refused = web.get(path)
                assert (refused.status_code, "try again" in refused.text) == (429, True)
            assert web.get("/topics/users").status_code == 200
            assert "superseded" not in web.get("/topics/users/records/0/0").text  # it does not know
        for path in scans:
            assert web.get(path).status_code == 200

    def test_large_values_are_cut_and_can_be_had(self, web: TestClient, users: Topic) -> None:
        users.append([("big", b"y" * 100_000)])
        page = web.get("/topics/users/records?from=5").text
        assert "y" * 601 not in page
        assert "show all" in page
        assert "y" * 100_000 in web.get("/topics/users/records/0/5").text
        whole = web.get("/api/topics/users/partitions/0/records/5/value")
        assert whole.content == b"y" * 100_000
        assert whole.headers["content-type"] == "application/octet-stream"
        assert "attachment" in whole.headers["content-disposition"]

    def test_values_that_are_not_there(self, web: TestClient, users: Topic) -> None:
        clean(users)
        for offset, why in (
            (0, "a pass has removed it"),
            (4, "a tombstone"),
            (5, "it is log end"),
            (99, "beyond log end"),
        ):
            answer = web.get(f"/api/topics/users/partitions/0/records/{offset}/value")
            assert (answer.status_code, why in answer.json()["message"]) == (404, True), offset
        assert "a pass has removed it" in web.get("/topics/users/records/0/0").text

    def test_hostile_keys_values_and_headers(self, web: TestClient, users: Topic) -> None:
        users.append([(HOSTILE, HOSTILE, None, ((HOSTILE, HOSTILE.encode()),))])
        users.append([("j", f'{{"x": "{HOSTILE[:-3]}"}}')])
        for path in ("records", "records?view=latest", f"records?view=key&key={HOSTILE}", "records/0/5"):  # fmt: skip
            page = web.get(f"/topics/users/{path}").text
            assert "<script>document" not in page
            assert "<img src=x" not in page
            assert "&lt;script&gt;" in page
        assert "<script>" not in web.get(f"/?filter={HOSTILE}").text.replace('<script type="module"', "")  # fmt: skip

    def test_passes_tell_of_their_files(self, web: TestClient, users: Topic) -> None:
        (done,) = clean(users)
        page = web.get(f"/passes/{done.id}").text
        assert "2 obsolete" in page
        assert "rewritten" in page
        assert f"/passes/{done.id}" in web.get("/passes").text
        account = web.get(f"/api/passes/{done.id}").json()
        assert account["done"]["records_in"] == 5
        assert [f["fate"] for f in account["files"]] == ["written", "rewritten", "merged"]

    def test_errors_are_spelled(self, web: TestClient, users: Topic) -> None:
        path = Path(users._base.root.full(live_paths(users)[0]))
        path.write_bytes(b"broken")
        (failed,) = clean(users)
        with users._base.catalog.write() as tx:
            tx.execute(schema.pass_.update().values(error="a\u202eb"))
        for page in ("/passes", f"/passes/{failed.id}", "/topics/users"):
            assert "failed: a\\u202eb" in web.get(page).text.replace("nothing: ", "failed: ")
        told = web.get(f"/passes/{failed.id}").text
        for never in (
            "for the first time",
            "tombstones may go",
            "records read",
            "nothing to remove",
        ):
            assert never not in told
        assert "the last 1 pass failed" in web.get("/topics/users").text

    def test_failures_do_not_push_out_what_was_done(
        self, web: TestClient, users: Topic, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (done,) = clean(users)
        clock.advance(1)
        path = Path(users._base.root.full(live_paths(users)[0]))
        path.rename(path.with_suffix(".away"))
        users.append([("a", "4")])
        for _ in range(3):
            assert clean(users)[0].error
        monkeypatch.setattr("lastword.ui.known._GROWTH_PASSES", 2)
        growth = web.get("/api/topics/users/growth").json()
        assert growth["uncompacted"][-1] > growth["compacted"][-1]
        last = [web.get("/api/topics").json()[0], web.post("/api/topics/users/resume", headers=WITH_TOKEN).json()]  # fmt: skip
        assert [t["last_pass_ms"] for t in last] == [done.started_ms] * 2
        assert last[0]["keys"] == last[1]["keys"]

    def test_files_that_stay_are_counted_only(self, web: TestClient, users: Topic) -> None:
        users.alter({"segment.bytes": 1 << 20})
        users.append([(f"k{n}", os.urandom(20_000)) for n in range(40)])
        clean(users)
        write(users, "a=4")
        (done,) = clean(users)
        assert (done.files_kept, done.files_rewritten) == (2, 1)
        account = web.get(f"/api/passes/{done.id}").json()
        assert "kept" not in {f["fate"] for f in account["files"]}
        assert "2 files had nothing to remove" in web.get(f"/passes/{done.id}").text

    def test_what_is_not_there(self, web: TestClient, users: Topic) -> None:
        for path in ("/nope", "/topics/user", "/topics/a%00b", "/passes/99", "/topics/users/records/0/99"):  # fmt: skip
            answer = web.get(path)
            assert answer.status_code == 404, path
            assert answer.headers["content-type"].startswith("text/html")
        assert "did you mean &#39;users&#39;" in web.get("/topics/user").text
        assert web.get("/api/topics/user").json()["error"] == "UnknownTopicError"
        assert web.get("/api/nope").json()["error"] == "HTTPError"
        assert "evil" not in "".join(
            re.findall('href="[^"]*"', web.get("http://127.0.0.1:8383//evil.example/a").text)
        )

    def test_an_empty_store(self, web: TestClient) -> None:
        assert "There are no topics yet" in web.get("/").text
        assert "No passes yet" in web.get("/passes").text

    def test_a_broken_store(self, web: TestClient, users: Topic, local: Store) -> None:
        (path,) = [f.path for f in local.base.root.files()][:1]
        os.truncate(local.base.root.full(path), 10)
        answer = web.get("/topics/users/records")
        assert answer.status_code == 503
        assert "lastword check" in answer.text
        assert web.get("/topics/users").status_code == 200  # the catalog still knows
        with local.base.catalog.write() as tx:
            tx.exec_driver_sql("DROP TABLE file")
        answer = web.get("/topics/users")
        assert answer.status_code == 503
        assert "catalog of" in answer.text
        assert web.get("/api/topics/users").status_code == 503

    def test_health(self, web: TestClient, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("late", config={"max.compaction.lag.ms": 1_000})
        write(topic, "a=1 | a=2*")
        topic.pause()
        clock.advance(5_000)
        page = web.get("/").text
        assert "overdue by 4.0 s" in page
        assert "1 topic needs attention" in page
        assert "paused" in page

    def test_what_the_cleaner_is_at(self, web: TestClient, users: Topic, local: Store) -> None:
        (plan,) = decisions_for(local.base, [users.row], Asked(force=True))
        assert isinstance(plan, Clean)
        assert "being cleaned" not in web.get("/topics/users").text
        with Cleaner(local.base, InProcess()) as cleaner:
            cleaner.claim(plan)
            page = web.get("/topics/users").text
            assert "being cleaned" in page
            assert ">well<" not in page
            cleaner.release()
        assert "the cleaner is switched off" not in web.get("/").text
        web.patch("/api/settings", json={"changes": {"log.cleaner.enable": "false"}}, headers=WITH_TOKEN)  # fmt: skip
        assert "the cleaner is switched off" in web.get("/").text
        assert "the cleaner service is switched off" in web.get("/topics/users").text

    def test_which_of_many_partitions_need_attention(
        self, web: TestClient, local: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = local.create_topic("wide", 20, {"max.compaction.lag.ms": 1_000})
        for partition in (8, 19):
            write(topic, "a=1 | a=2*", partition)
        clock.advance(5_000)

        def shown() -> list[tuple[str, str]]:
            page = web.get("/topics/wide").text
            assert re.findall(r">(\w+)</span> partitions", page) == ["overdue", "due"]
            return re.findall(r"page=(\d+)#partition-(\d+)", page)

        assert shown() == [("2", "8"), ("3", "19")] * 2
        assert 'id="partition-19"' in web.get("/topics/wide?page=3").text
        monkeypatch.setattr("lastword.ui.topic_page._MOST_NOTABLE", 1)
        assert shown() == [("2", "8")] * 2
        assert "and 1 more" in web.get("/topics/wide").text
        write(local.create_topic("narrow", 8, {"max.compaction.lag.ms": 1}), "a=1 | a=2*")
        clock.advance(5_000)
        assert (
            "</span> partitions" not in web.get("/topics/narrow").text
        )  # all of it is on this page

    def test_metrics(self, web: TestClient, users: Topic) -> None:
        assert web.head("/metrics").status_code == 200
        answer = web.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert 'lastword_topic_records{topic="users"} 5.0' in answer.text


class TestDoing:
    def test_create_alter_pause(self, web: TestClient, local: Store) -> None:
        made = web.post("/api/topics", json={"name": "new", "partitions": 3, "settings": {"segment.ms": "1000"}}, headers=WITH_TOKEN)  # fmt: skip
        assert made.status_code == 201
        assert local.topic("new").config.segment_ms == 1000
        assert "new" in web.get("/").text
        altered = web.patch("/api/topics/new/settings", json={"changes": {"segment.ms": None, "retention.ms": "5"}}, headers=WITH_TOKEN)  # fmt: skip
        assert altered.status_code == 200
        assert local.topic("new").config.retention_ms == 5
        for act, is_paused in (("pause", True), ("resume", False)):
            assert web.post(f"/api/topics/new/{act}", headers=WITH_TOKEN).status_code == 200
            assert local.topic("new").row.is_paused is is_paused
            assert ("paused" in web.get("/").text) is is_paused

    def test_the_stores_settings(self, web: TestClient, local: Store) -> None:
        body = {"changes": {"log.cleaner.backoff.ms": "99"}}
        assert web.patch("/api/settings", json=body, headers=WITH_TOKEN).status_code == 200
        assert 'value="99"' in web.get("/settings").text

    def test_what_cannot_be(self, web: TestClient, users: Topic) -> None:
        def post(path: str, body: object, method: str = "POST") -> tuple[int, str]:
            answer = web.request(method, path, json=body, headers=WITH_TOKEN)
            return answer.status_code, answer.json().get("message", "")

        assert post("/api/topics", {"name": "users"})[0] == 409
        status, message = post("/api/topics", {"name": "a b"})
        assert (status, "is not valid" in message) == (400, True)
        change = {"changes": {"segment.mss": "1"}}
        status, message = post("/api/topics/users/settings", change, "PATCH")
        assert (status, "did you mean 'segment.ms'?" in message) == (400, True)
        change = {"changes": {"segment.ms": "-1"}}
        status, message = post("/api/topics/users/settings", change, "PATCH")
        assert (status, "must be greater than or equal to 1" in message) == (400, True)
        users.alter({"cleanup.policy": "delete"})
        assert post("/api/topics/users/clean", {})[0] == 409
        half = web.patch("/api/settings", content=b'{"changes": {"log.cleaner.enable": "\\ud83d"}}', headers={**WITH_TOKEN, "content-type": "application/json"})  # fmt: skip
        assert (half.status_code, "=\\ud83d: must" in half.json()["message"]) == (400, True)

    def test_what_retention_does_first(
        self, web: TestClient, local: Store, clock: ManualClock
    ) -> None:
        config = {"cleanup.policy": "compact,delete", "retention.ms": 1_000}
        write(local.create_topic("t", config=config), "a=1 b=1 | a=2*")
        clock.advance(2_000)
        (planned,) = web.get("/api/topics/t/plan").json()
        (first,) = planned["first"]
        assert first.startswith("before that, retention would drop 2 segments, 3 records (")
        done = web.post("/api/topics/t/clean", json={}, headers=WITH_TOKEN).json()
        while done["state"] in ("waiting", "running"):
            done = web.get(f"/api/cleanings/{done['id']}").json()
        (expired,) = done["expired"]
        assert expired.startswith("t-0: expired 2 segments, 3 records (")

    def test_clean_after_a_dry_run(self, web: TestClient, users: Topic) -> None:
        (left,) = web.get("/api/topics/users/plan").json()
        assert (left["is_clean"], "all that is dirty" in left["sentence"]) == (True, False)
        (planned,) = web.get("/api/topics/users/plan?force=true").json()
        assert (planned["is_clean"], planned["records"], planned["end"]) == (True, 5, 5)
        assert planned["removed"] is None
        (counted,) = web.get("/api/topics/users/plan?force=true&count=true").json()
        assert counted["removed"] == {"obsolete": 2}
        assert users.describe().records == 5
        started = web.post("/api/topics/users/clean", json={"force": True}, headers=WITH_TOKEN)
        assert started.status_code == 202
        done = started.json()
        while done["state"] in ("waiting", "running"):
            done = web.get(f"/api/cleanings/{done['id']}").json()
        assert (done["state"], done["error"], len(done["passes"])) == ("done", None, 1)
        removed = done["passes"][0]["removed"]
        assert {r: n for r, n in removed.items() if n} == counted["removed"]
        assert "offsets 0 to 4 for the first time" in web.get("/passes/1").text
        assert [r.offset for r in users.read(0)] == [2, 3, 4]
        assert web.get("/api/cleanings/99").status_code == 404

    def test_a_cleaning_that_fails_says_why(
        self, web: TestClient, users: Topic, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lastword.ui.watch._QUICK_S", -1)
        for file in local.base.root.files():
            os.truncate(local.base.root.full(file.path), 10)
        assert "1 failed" not in web.get("/").text
        done = web.post("/api/topics/users/clean", json={"force": True}, headers=WITH_TOKEN).json()
        while done["state"] in ("waiting", "running"):
            done = web.get(f"/api/cleanings/{done['id']}").json()
        assert done["state"] == "failed"
        assert "lastword check" in done["error"]
        assert "1 failed" in web.get("/").text

    def test_a_dry_run_counts_tombstones_past_their_horizon(
        self, web: TestClient, users: Topic, clock: ManualClock
    ) -> None:
        clean(users)
        clock.advance(25 * HOUR_MS)
        (planned,) = web.get("/api/topics/users/plan?count=true").json()
        assert (planned["is_clean"], planned["removed"]) == (True, {"tombstone": 1})

    def test_those_that_wait_are_not_forgotten(
        self, local: Store, users: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cleanings, "_MOST_KEPT", 2)
        go_on = threading.Event()

        def slow(_progress: object) -> InProcess:
            go_on.wait(10)
            return InProcess()

        cleaner = cleanings.Cleanings(local, slow, lambda: None)
        ids = [cleaner.start("users", Asked()).id for _ in range(4)]
        assert [cleaner.get(i).id for i in ids] == ids
        go_on.set()
        while cleaner.get(ids[-1]).state != "done":
            time.sleep(0.01)
        last = cleaner.start("users", Asked()).id
        assert cleaner.get(last).id == last
        with pytest.raises(HTTPException):
            cleaner.get(ids[0])
        cleaner.close()

    def test_a_cleaning_that_fails_by_our_fault_says_so(
        self, local: Store, users: Topic, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(_progress: object) -> InProcess:
            raise ZeroDivisionError("ours")

        cleaner = cleanings.Cleanings(local, broken, lambda: None)
        started = cleaner.start("users", Asked(force=True))
        cleaner.close()
        assert cleaner.get(started.id).error == "ZeroDivisionError: ours"
        assert "a cleaning of users failed" in caplog.text


CHANGES: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/api/topics", {"name": "x"}),
    ("PATCH", "/api/topics/users/settings", {"changes": {"segment.ms": "7"}}),
    ("PATCH", "/api/settings", {"changes": {"log.cleaner.backoff.ms": "7"}}),
    ("POST", "/api/topics/users/pause", None),
    ("POST", "/api/topics/users/resume", None),
    ("POST", "/api/topics/users/clean", {}),
)


class TestWhoMay:
    @pytest.mark.parametrize(("method", "path", "body"), CHANGES)
    @pytest.mark.parametrize("headers", [{}, {"x-lastword-token": "other"}, {"cookie": f"token={TOKEN}"}])  # fmt: skip
    def test_no_change_without_the_token(
        self, web: TestClient, users: Topic, local: Store, method: str, path: str, body: Any, headers: dict[str, str]
    ) -> None:  # fmt: skip
        before = (local.topics(), users.describe(), local.settings())
        answer = web.request(method, path, json=body, headers=headers)
        assert answer.status_code == 401
        assert "token" in answer.json()["message"]
        assert (local.topics(), users.describe(), local.settings()) == before

    def test_all_that_changes_is_tried_above(self, local: Store) -> None:
        paths = client(local).get("/openapi.json").json()["paths"]
        tried = {(method, path.replace("users", "{topic}")) for method, path, _ in CHANGES}
        found = {
            (method.upper(), path)
            for path, methods in paths.items()
            for method in methods
            if method != "get" and not path.startswith("/api/scene")
        }
        assert tried == found

    @pytest.mark.parametrize(("method", "path", "body"), CHANGES)
    def test_read_only(self, local: Store, users: Topic, method: str, path: str, body: Any) -> None:
        answer = client(local, Access(token=TOKEN, read_only=True)).request(
            method, path, json=body, headers=WITH_TOKEN
        )
        assert answer.status_code == 403

    def test_a_read_only_page_offers_no_change(self, local: Store, users: Topic) -> None:
        web = client(local, Access(token=TOKEN, read_only=True))
        for path in ("/", "/topics/users", "/settings", "/new"):
            page = web.get(path).text
            assert "read-only" in page
            assert not re.findall("data-post|New topic</a>|Clean…|>Save<|<form id=.new-topic", page)

    def test_no_other_site_under_its_own_name(self, local: Store) -> None:
        web = client(local)
        for host in ("evil.example", "127.0.0.1.evil.example", "", "[::1", "192.168.1.7:8383"):
            assert web.get("/api/topics", headers={"host": host}).status_code == 421, host
        for host in ("localhost:8383", "127.0.0.1", "[::1]:8383"):
            assert web.get("/api/topics", headers={"host": host}).status_code == 200, host

    def test_no_site_is_let_in_by_cors(self, web: TestClient) -> None:
        asked = {"origin": "http://evil.example", "access-control-request-method": "POST", "access-control-request-headers": "x-lastword-token"}  # fmt: skip
        answer = web.options("/api/topics", headers=asked)
        assert not [name for name in answer.headers if name.startswith("access-control")]
        answer = web.get("/api/topics", headers={"origin": "http://evil.example"})
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers

    def test_no_page_of_another_site_can_make_it_work(self, web: TestClient, users: Topic) -> None:
        picture_of = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}  # fmt: skip
        link_to = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}  # fmt: skip
        frame_of = {**link_to, "sec-fetch-dest": "iframe"}
        for path in ("/api/topics/users/keys", "/topics/users/records?view=latest", "/metrics"):
            assert web.get(path, headers=picture_of).status_code == 403
            assert web.get(path, headers=frame_of).status_code == 403
        assert web.get("/api/topics/users/keys", headers=link_to).status_code == 403
        assert web.get("/topics/users", headers=link_to).status_code == 200
        own = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
        assert web.get("/api/topics/users/keys", headers=own).status_code == 200

    def test_large_bodies_are_not_even_read(self, web: TestClient) -> None:
        state = web.post("/api/scene", json={}).json()
        body = {"key": "k", "value": "x" * 100_000}
        assert web.post(f"/api/scene/{state['id']}/send", json=body).status_code == 413
        chunks = web.post(f"/api/scene/{state['id']}/send", content=iter([b"{}"]), headers={"content-type": "application/json"})  # fmt: skip
        assert chunks.status_code == 413
        for size in ("abc", "-5", "9" * 5_000):
            odd = web.post("/api/scene", content=b"{}", headers={"content-type": "application/json", "content-length": size})  # fmt: skip
            assert odd.status_code == 413
        refused = web.post(f"/api/scene/{state['id']}/send", json={"key": "k" * 50_000})
        assert (refused.status_code, len(refused.text) < 600) == (422, True)

    def test_whether_a_token_is_good(self, local: Store) -> None:
        web = client(local)
        for token, may in ((TOKEN, True), ("old", False), ("", False)):
            answer = web.get("/api/access", headers={TOKEN_HEADER: token})
            assert answer.json() == {"may_change": may}
        read_only = client(local, Access(token=TOKEN, read_only=True))
        assert read_only.get("/api/access", headers=WITH_TOKEN).json() == {"may_change": False}

    def test_a_scene_needs_json(self, web: TestClient) -> None:
        """Which no form of another site can send."""
        assert web.post("/api/scene", headers={"content-type": "text/plain"}).status_code == 415

    def test_the_password(self, local: Store) -> None:
        web = client(local, Access("0.0.0.0", password="pä:ss", token=TOKEN))
        given = {"authorization": "Basic " + base64.b64encode("me:pä:ss".encode()).decode()}
        for wrong in ({}, {"authorization": "Basic xx"}, {"authorization": "Bearer x"}, {"authorization": "Basic bWU6eA=="}, {"authorization": "Basic bWU6"}, {"authorization": b"Basic \xfc"}):  # fmt: skip
            answer = web.get("/metrics", headers=wrong)  # type: ignore[arg-type]
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Basic")
        assert web.get("/metrics", headers={**given, "host": "any.example"}).status_code == 200
        assert web.post("/api/topics", json={"name": "x"}, headers=given).status_code == 401
        both = {**given, **WITH_TOKEN}
        assert web.post("/api/topics", json={"name": "x"}, headers=both).status_code == 201

    def test_a_password_may_be_any_bytes(self, local: Store) -> None:
        web = client(local, Access("0.0.0.0", password=os.fsdecode(b"p\xe4ss"), token=TOKEN))
        given = {"authorization": "Basic " + base64.b64encode(b"me:p\xe4ss").decode()}
        assert web.get("/", headers=given).status_code == 200
        assert web.get("/", headers={"authorization": "Basic bWU6eA=="}).status_code == 401

    def test_other_addresses_need_one(self, local: Store) -> None:
        for host in ("0.0.0.0", "192.168.1.7", "::"):
            with pytest.raises(InvalidArgumentError, match="can be reached from other machines"):
                serve(local, Access(host), 0, in_process, lambda _: None)
        assert [is_loopback(h) for h in ("127.0.0.2", "::1", "localhost", "::", "example.org")] == [
            True,
            True,
            True,
            False,
            False,
        ]


class TestScene:
    def play(self, web: TestClient, state: dict[str, Any], act: str, **body: object) -> Any:
        answer = web.post(f"/api/scene/{state['id']}/{act}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def test_kafkas_example_step_by_step(self, web: TestClient) -> None:
        state = web.post("/api/scene", json={}).json()
        latest = state["latest"]
        offsets = [r["offset"] for r in state["records"]]
        assert (state["phase"], offsets) == ("idle", list(range(11)))
        state = self.play(web, state, "step")
        assert state["phase"] == "planned"
        state = self.play(web, state, "step")
        assert (state["phase"], state["offset_map"]) == (
            "marked",
            {"K1": 3, "K3": 4, "K2": 5, "K4": 6, "K5": 7},
        )
        assert "Newer records of K2 and K5 come from offset 8 on" in state["message"]
        assert [r["offset"] for r in state["records"] if r["goes"]] == [0, 1, 2]
        assert state["records"][0]["verdict"] == "obsolete, superseded by offset 3"
        state = self.play(web, state, "step")
        assert (state["phase"], state["survivors"]) == ("swept", [3, 4, 5, 6, 7])
        assert len(state["records"]) == 11  # readers still see all
        state = self.play(web, state, "step")
        assert [r["offset"] for r in state["records"]] == list(range(3, 11))
        assert (state["phase"], state["latest"]) == ("committed", latest)
        state = self.play(web, state, "send", key="K2", value="V12")
        for act in ("roll", "step", "step"):
            state = self.play(web, state, act)
        assert state["offset_map"]["K2"] == 11
        assert "Newer" not in state["message"]  # all of them are covered
        for act in ("step", "step"):
            state = self.play(web, state, act)
        assert self.play(web, state, "advance", ms=1)["phase"] == "idle"

    def test_a_tombstone_waits_for_its_horizon(self, web: TestClient) -> None:
        state = web.post("/api/scene", json={}).json()
        state = self.play(web, state, "send", key="K6", value=None)
        assert "K6" not in state["latest"]
        state = self.play(web, state, "roll")
        for _ in range(4):
            state = self.play(web, state, "step")
        (tombstone,) = [r for r in state["records"] if r["value"] is None]
        assert (tombstone["key"], tombstone["waits"]) == ("K6", "1 h")
        state = self.play(web, state, "step")
        assert (state["phase"], "nothing was appended" in state["message"]) == ("idle", True)
        state = self.play(web, state, "advance", ms=HOUR_MS)
        for _ in range(4):
            state = self.play(web, state, "step")
        assert [r for r in state["records"] if r["value"] is None] == []
        assert state["removed"]["tombstone"] == 1

    def test_a_quiet_active_segment_is_rolled_when_it_is_due(self, web: TestClient) -> None:
        state = web.post("/api/scene", json={}).json()
        state = self.play(web, state, "advance", ms=8 * 24 * HOUR_MS)
        state = self.play(web, state, "step")
        assert "covers offsets 0 to 10" in state["message"]

    def test_records_may_come_in_the_middle_of_a_pass(self, web: TestClient) -> None:
        state = web.post("/api/scene", json={}).json()
        for _ in range(3):
            state = self.play(web, state, "step")
            state = self.play(web, state, "send", key="K1", value="later")
        state = self.play(web, state, "step")
        assert (state["phase"], state["latest"]["K1"]) == ("committed", "later")

    def test_what_mark_decided_is_shown_whatever_the_clock_says_then(self, web: TestClient) -> None:
        state = web.post("/api/scene", json={}).json()
        state = self.play(web, state, "send", key="K6", value=None)
        state = self.play(web, state, "roll")
        for _ in range(4):
            state = self.play(web, state, "step")
        state = self.play(web, state, "send", key="K2", value="more")
        state = self.play(web, state, "roll")
        for _ in range(2):
            state = self.play(web, state, "step")
        goes = [r["offset"] for r in state["records"] if r["goes"]]
        state = self.play(web, state, "advance", ms=2 * HOUR_MS)
        assert [r["offset"] for r in state["records"] if r["goes"]] == goes == [9]
        for _ in range(2):
            state = self.play(web, state, "step")
        assert 11 in [r["offset"] for r in state["records"]]

    def test_it_takes_little_room(self, web: TestClient) -> None:
        state = web.post("/api/scene", json={}).json()
        for n in range(8):
            self.play(web, state, "send", key="K1", value=str(n))
            self.play(web, state, "roll")
            for _ in range(4):
                state = self.play(web, state, "step")
        folder = web.app.state.parts.scenes.get(state["id"])._folder.name  # type: ignore[attr-defined]
        assert len(list(Path(folder).rglob("*.parquet"))) == 1

    def test_bounds(self, web: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(scene, "MOST_RECORDS", 12)
        monkeypatch.setattr(scenes, "_MOST_SCENES", 1)
        state = web.post("/api/scene", json={}).json()
        path = f"/api/scene/{state['id']}"
        assert web.post(f"{path}/send", json={"key": "", "value": "x"}).status_code == 422
        assert web.post(f"{path}/send", json={"key": "K" * 21, "value": "x"}).status_code == 422
        self.play(web, state, "send", key="a", value="b")
        answer = web.post(f"{path}/send", json={"key": "a", "value": "b"})
        assert (answer.status_code, "at the most" in answer.json()["message"]) == (400, True)
        oldest = web.app.state.parts.scenes.get(state["id"])  # type: ignore[attr-defined]
        folder = oldest._folder.name
        assert Path(folder).exists()
        web.post("/api/scene", json={})
        assert web.get(path).status_code == 404  # the older one has made room
        assert not Path(folder).exists()


def test_a_fault_of_ours_is_answered_in_words(
    local: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    web = TestClient(make_app(local, Access(), in_process), "http://127.0.0.1", raise_server_exceptions=False)  # fmt: skip
    answer = web.post("/api/scene", json={})
    assert (answer.status_code, answer.json()["error"]) == (500, "FileNotFoundError")
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_many_scenes_at_once(web: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that have to make room are over, and nobody else notices."""
    monkeypatch.setattr(scenes, "_MOST_SCENES", 2)

    def visit(_n: int) -> set[int]:
        made = web.post("/api/scene", json={})
        if made.status_code == 404:
            return set()
        played = [web.post(f"/api/scene/{made.json()['id']}/step", json={}) for _ in range(4)]
        return {made.status_code, *(p.status_code for p in played)}

    with ThreadPoolExecutor(8) as pool:
        assert set().union(*pool.map(visit, range(24))) <= {201, 200, 404}


class TestWatch:
    def test_who_changes_something_sees_it(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Even if an overview was being made meanwhile."""
        looked, go_on = threading.Event(), threading.Event()

        def slow(base: Foundation) -> Overview:
            seen = overview(base)
            looked.set()
            go_on.wait(10)
            return seen

        monkeypatch.setattr("lastword.ui.watch._QUICK_S", -1)
        monkeypatch.setattr("lastword.ui.watch.overview", slow)
        watch = Watch(local.base)
        watch.begin()
        looked.wait(10)
        local.create_topic("mine")
        watch.forget()
        go_on.set()
        assert [t.name for t in watch.seen().topics] == ["mine"]
        assert [t.name for t in watch.fresh().topics] == ["mine"]

    @pytest.mark.parametrize("how", [Watch.seen, Watch.fresh])
    def test_the_first_visitor_waits_for_the_one_that_is_being_made(
        self, local: Store, monkeypatch: pytest.MonkeyPatch, how: Callable[[Watch], Overview]
    ) -> None:
        made, began, go_on = [], threading.Event(), threading.Event()

        def slow(base: Foundation) -> Overview:
            made.append(overview(base))
            began.set()
            go_on.wait(10)
            return made[-1]

        monkeypatch.setattr("lastword.ui.watch._QUICK_S", -1)
        monkeypatch.setattr("lastword.ui.watch.overview", slow)
        watch = Watch(local.base)
        watch.begin()
        began.wait(10)
        threading.Timer(0.1, go_on.set).start()
        assert how(watch) is made[0]
        assert len(made) == 1

    def test_what_takes_long_is_made_behind_the_scenes(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        watch = Watch(local.base)
        watch.seen()
        monkeypatch.setattr("lastword.ui.watch._QUICK_S", -1)
        local.create_topic("theirs")
        assert watch.seen().topics == ()
        monkeypatch.setattr("lastword.ui.watch._FRESH_S", 0)
        monkeypatch.setattr("lastword.ui.watch._REST", 0)
        while not watch.seen().topics:
            time.sleep(0.01)

    def test_what_was_changed_here_is_seen_at_once(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lastword.ui.watch._QUICK_S", -1)
        watch = Watch(local.base)
        watch.seen()
        local.create_topic("mine")
        watch.forget()
        assert [t.name for t in watch.seen().topics] == ["mine"]

    def test_who_looks_after_a_long_time_waits(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lastword.ui.watch._QUICK_S", -1)
        watch = Watch(local.base)
        watch.seen()
        local.create_topic("theirs")
        assert watch.seen().topics == ()
        watch._began_s -= 3_600
        assert [t.name for t in watch.seen().topics] == ["theirs"]


def test_the_demo(tmp_path: Path) -> None:
    fill(str(tmp_path))
    with lastword.open(tmp_path) as store:
        assert len(store.topics()) == 5
        assert store.check(quick=True).is_clean
        web = client(store)
        for name in store.topics():
            assert web.get(f"/topics/{name}").status_code == 200
        assert "billing holds tombstones" in web.get("/").text


def test_no_cleaning_begins_when_the_page_has_ended(local: Store, users: Topic) -> None:
    done = cleanings.Cleanings(local, lambda _: InProcess(), lambda: None)
    done.close()
    with pytest.raises(RuntimeError):
        done.start("users", Asked())


GOOD_BODIES: dict[str, Any] = {
    "POST /api/topics": {"name": "made", "partitions": 2},
    "PATCH /api/topics/{topic}/settings": {"changes": {"segment.ms": "5000", "retention.ms": None}},
    "PATCH /api/settings": {"changes": {"log.cleaner.backoff.ms": "5000"}},
    "POST /api/scene/{scene_id}/send": {"key": "K1", "value": None},
}


class TestContract:
    """The API does what its own description says, whatever is sent."""

    def test_against_its_description(self, local: Store, users: Topic) -> None:
        (done,) = clean(users)
        with served(local) as address:
            described = schemathesis.openapi.from_url(f"{address}/openapi.json")
            operations = [found.ok() for found in described.get_all_operations()]  # type: ignore[union-attr]
            state = client_of(address).post("/api/scene", json={}).json()
            cleaning = client_of(address).post(
                "/api/topics/users/clean", json={}, headers=WITH_TOKEN
            )
            real = {"topic": "users", "partition": 0, "offset": 2, "pass_id": done.id}
            real |= {"scene_id": state["id"], "cleaning_id": cleaning.json()["id"]}
            for operation in operations:
                assert 200 <= min(self.statuses(operation, real)) < 300, operation.label
        assert len(operations) > 20
        assert users.describe().records >= 3  # nothing here deletes

    def statuses(self, operation: Any, real: dict[str, Any]) -> set[int]:
        """Those that came, mostly of what is there; each answer as described."""
        found = set()

        @settings(max_examples=times(12), suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(), is_real=st.sampled_from([True, True, False]))
        def check(case: schemathesis.Case[Any], is_real: bool) -> None:
            if is_real:
                case.path_parameters = {n: real[n] for n in case.path_parameters or {}}
                case.body = GOOD_BODIES.get(operation.label, case.body)
            headers = WITH_TOKEN if operation.body else {**WITH_TOKEN, "content-type": "application/json"}  # fmt: skip
            answer = case.call_and_validate(
                headers=headers, excluded_checks=[positive_data_acceptance, negative_data_rejection]
            )
            found.add(answer.status_code)

        check()
        return found


def client_of(address: str) -> httpx2.Client:
    return httpx2.Client(base_url=address)
