"""What a visitor may change, and cleanings that were asked for."""

from __future__ import annotations

import os
import threading

import pytest
from fastapi import HTTPException
from starlette.testclient import TestClient

from lastword.cleaner.choose import Asked
from lastword.store import Store
from lastword.testing import InProcess, ManualClock
from lastword.topic import Topic
from lastword.ui import cleanings
from tests.notation import clean, write
from tests.waiting import until
from tests.web import WITH_TOKEN, cleaned

HOUR_MS = 3_600_000


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
        done = cleaned(web, "t")
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
        done = cleaned(web, "users", force=True)
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
        done = cleaned(web, "users", force=True)
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
            assert go_on.wait(150)
            return InProcess()

        cleaner = cleanings.Cleanings(local, slow, lambda: None)
        ids = [cleaner.start("users", Asked()).id for _ in range(4)]
        assert [cleaner.get(i).id for i in ids] == ids
        go_on.set()
        until(lambda: cleaner.get(ids[-1]).state == "done")
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


def test_no_cleaning_begins_when_the_page_has_ended(local: Store, users: Topic) -> None:
    done = cleanings.Cleanings(local, lambda _: InProcess(), lambda: None)
    done.close()
    with pytest.raises(RuntimeError):
        done.start("users", Asked())
