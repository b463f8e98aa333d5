"""Records, without a browser: pages of the log and of the latest view, a key's history, values."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from lastword.store import Store
from lastword.testing import ManualClock
from lastword.topic import Topic
from lastword.words import in_time
from tests.notation import clean, live_paths, write

HOUR_MS = 3_600_000
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\"'&"


class TestRecords:
    def test_records_from_an_offset_and_beyond(self, web: TestClient, users: Topic) -> None:
        users.append([(f"k{n}", "v") for n in range(60)])
        page = web.get("/topics/users/records?from=5").text
        assert re.findall(r"/records/0/(\d+)\"", page) == [str(n) for n in range(5, 55)]
        assert "from=55" in page
        assert "offset 99 is beyond log end" in web.get("/topics/users/records?from=99").text
        assert web.get("/topics/users/records?partition=3").status_code == 404
        refused = web.get("/topics/users/records?from=-1")
        assert "is neither an offset nor a time" in html.unescape(refused.text)
        assert refused.headers["content-type"].startswith("text/html")
        assert web.get("/topics/users/records?from=&partition=0&as=auto").status_code == 200

    def test_records_since_a_moment(
        self, web: TestClient, users: Topic, clock: ManualClock
    ) -> None:
        def first(since: str) -> str:
            page = web.get("/topics/users/records", params={"from": since}).text
            return str(re.findall(r"/records/0/(\d+)\"", page)[0])

        clock.advance(HOUR_MS)
        users.append([("d", "1")])
        at = in_time(clock())
        assert (first(at), first(at.replace("Z", "+02:00")), first("2001-02-03")) == ("5", "0", "0")
        assert first(at[:-1]) == "5"  # without a time zone, it is UTC
        later = web.get("/topics/users/records?from=2999-01-01").text
        assert "No records from here on" in later
        for odd in ("yesterday", "1e3", "2026-13-01"):
            page = web.get("/topics/users/records", params={"from": odd}).text
            assert "is neither an offset nor a time" in page
            assert f'value="{odd}"' in page  # to be mended

    def test_the_newest_records(self, web: TestClient, users: Topic) -> None:
        users.append([(f"k{n}", "v") for n in range(95)])
        (link,) = re.findall(r'href="([^"]+)">newest', web.get("/topics/users/records").text)
        page = web.get("/topics/users/records" + html.unescape(link)).text
        assert re.findall(r"/records/0/(\d+)\"", page) == [str(n) for n in range(50, 100)]

    def test_what_lies_beside_a_broken_file_can_be_read(
        self, web: TestClient, users: Topic, local: Store
    ) -> None:
        for n in range(3):
            users.append([(f"k{n}{i}", "v") for i in range(30)])
        Path(local.base.root.full(live_paths(users)[3])).unlink()  # offsets 35 to 64

        def look(start: int) -> tuple[int, list[str], list[str]]:
            answer = web.get(f"/topics/users/records?from={start}")
            assert ("is missing" in answer.text) is (answer.status_code == 503)
            assert "From <input" in answer.text
            links = re.findall(r'from=(\d+)[^"]*" rel="(prev|next)"', answer.text)
            shown = re.findall(r"/records/0/(\d+)\"", answer.text)
            return answer.status_code, shown[::29], [f"{way} {at}" for at, way in links]

        assert look(5) == (503, ["5", "34"], ["prev 0", "next 65"])
        assert look(40) == (503, [], ["prev 0", "next 65"])
        assert look(65) == (200, ["65", "94"], ["prev 5"])
        latest = web.get("/topics/users/records?view=latest")
        assert (latest.status_code, "From <input" in latest.text) == (503, True)

    def test_back_to_earlier_records(
        self, web: TestClient, users: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def earlier(start: int) -> list[str]:
            return re.findall(r'from=(\d+)[^"]*" rel="prev"', web.get(f"/topics/users/records?from={start}").text)  # fmt: skip

        users.append([(f"k{n}", "v") for n in range(95)])
        assert (earlier(0), earlier(3), earlier(100)) == ([], ["0"], ["50"])
        users.append([("k1", "w")] * 300)
        clean(users)
        users.append([("k2", "w")])  # 96 records below 100, then none up to 399
        assert earlier(400) == ["51"]
        users.roll()
        users.append([("k2", "x")] * 300)
        reads, read = [], Topic.read

        def noted(topic: Topic, number: int, start: int, *rest: Any, **options: Any) -> Any:
            reads.append(start)
            return read(topic, number, start, *rest, **options)

        monkeypatch.setattr(Topic, "read", noted)
        assert earlier(700) == ["650"]
        assert reads == [401, 700]  # the files before are not read
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
            return web.get(f"/topics/users/records/{place}?last=true").text

        first = web.get("/topics/users/records/0/1?as=hex").text  # which looks no key up
        assert "superseded" not in first
        (link,) = re.findall(r'href="([^"]+)">is it the last word on its key', first)
        assert link == "?as=hex&amp;last=true"
        assert 'superseded by <a href="/topics/users/records/0/3?last=true">offset 3</a>' in page(
            "0/1"
        )
        assert "the last word on its key" in page("0/3")
        users.add_partitions(2)
        write(users, "a=9*", partition=1)
        assert 'superseded by <a href="/topics/users/records/1/0?last=true">1:0</a>' in page("0/3")

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
