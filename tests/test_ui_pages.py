"""The pages, without a browser: what they tell of topics, segments and passes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import lastword
from lastword.catalog import schema
from lastword.cleaner.choose import Asked, decisions_for
from lastword.cleaner.plan import Clean
from lastword.cleaner.run import Cleaner
from lastword.store import Store
from lastword.testing import InProcess, ManualClock
from lastword.topic import Topic
from lastword.ui.demo import fill
from tests.notation import clean, live_paths, write
from tests.web import WITH_TOKEN, client

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

    def test_the_worst_comes_first_then_what_is_due(
        self, web: TestClient, local: Store, clock: ManualClock
    ) -> None:
        for name in ("a.well", "b.due", "c.late", "d.due"):
            topic = local.create_topic(name)
            write(topic, "a=1*" if name == "a.well" else "a=1 | a=2*")
        local.topic("c.late").alter({"max.compaction.lag.ms": 1_000})
        clock.advance(5_000)
        found = re.findall(r'href="/topics/([^"]+)"', web.get("/?sort=-health").text)
        assert found == ["c.late", "b.due", "d.due", "a.well"]
        assert '"chip bad" href' in web.get("/").text

    def test_live_keys_are_sorted_as_they_are_told(self, web: TestClient, local: Store) -> None:
        write(local.create_topic("many"), "a=1 b=1 c=1*")
        write(local.create_topic("once"), "a=1 a=2 a=3 a=4*")

        def found() -> list[str]:
            return re.findall(r'href="/topics/([^"]+)"', web.get("/?sort=-keys").text)

        assert found() == ["once", "many"]  # at most
        web.get("/api/topics/once/keys")
        assert found() == ["many", "once"]

    def test_a_partition_is_gone_to(self, web: TestClient, local: Store) -> None:
        local.create_topic("wide", 30)
        assert 'name="partition"' in web.get("/topics/wide").text
        page = web.get("/topics/wide?scale=offsets&partition=17").text
        assert 'id="partition-17"' in page
        assert "page 3 of 4" in page
        assert "page 1 of 4" in web.get("/topics/wide?page=1&partition=17").text

    def test_what_is_not_compacted_has_no_passes_to_wait_for(
        self, web: TestClient, local: Store
    ) -> None:
        local.create_topic("kept", config={"cleanup.policy": "delete"})
        assert "No passes yet" not in web.get("/topics/kept").text

    def test_a_segment_that_was_clicked(self, web: TestClient, users: Topic) -> None:
        page = web.get("/topics/users?partition=0&segment=3").text
        assert "Segment 3" in page
        assert "offsets 3 to 4" in page
        assert "Segment" not in web.get("/topics/users?partition=0&segment=99").text
        assert "Segment" not in web.get("/topics/users?partition=1&segment=3").text

    def test_numbers_that_cannot_be(self, web: TestClient, users: Topic) -> None:
        for path in ("/passes/99999999999999999999", "/passes/abc", "/topics/users/records/99999999999/0", "/?page=0"):  # fmt: skip
            assert web.get(path).status_code == 422, path

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
        assert "the last pass failed" in web.get("/topics/users").text

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


def test_the_demo(tmp_path: Path) -> None:
    fill(str(tmp_path))
    with lastword.open(tmp_path) as store:
        assert len(store.topics()) == 5
        assert store.check(quick=True).is_clean
        web = client(store)
        for name in store.topics():
            assert web.get(f"/topics/{name}").status_code == 200
        assert "billing holds tombstones" in web.get("/").text
