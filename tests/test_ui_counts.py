"""What only a scan of the keys can tell: keys and survivors, counted on demand."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from lastword.cleaner.mark import mark
from lastword.files.reader import FileReader
from lastword.store import Store
from lastword.testing import ManualClock
from lastword.topic import Topic
from lastword.ui.scans import Scans
from lastword.words import in_time
from tests.notation import clean, write

HOUR_MS = 3_600_000


class TestCounts:
    def test_counting_survivors(self, web: TestClient, users: Topic, clock: ManualClock) -> None:
        def told() -> str:
            page = web.get("/topics/users").text
            (said,) = re.findall(r"<small>(\d+ of .* would be left if all were cleaned, counted .*)</small>", page)  # fmt: skip
            return re.sub("<[^>]*>", "", said)

        assert "count survivors<" in web.get("/topics/users").text
        answer = web.get("/api/topics/users/partitions/0/survivors")
        survivors = {"partition": 0, "log_end": 5, "at_ms": clock(), "segments": {"0": 1, "3": 2}}
        assert answer.json() == survivors
        page = web.get("/topics/users").text
        assert "1 would be left if all were cleaned" in page
        assert told().startswith("3 of 5 records would be left")
        assert told().endswith(f"counted {in_time(clock())}")
        users.append([("d", "1")])
        assert told().startswith("3 of 6 records would be left")
        assert told().endswith("up to offset 4")
        assert "count survivors again" in page
        web.get("/api/topics/users/partitions/0/survivors")
        assert told().startswith("4 of 6 records would be left")
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

    def test_survivors_of_segments_that_a_pass_has_joined(
        self, web: TestClient, local: Store
    ) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 | b=1 | c=1*")
        counted = web.get("/api/topics/t/partitions/0/survivors").json()["segments"]
        assert counted == {"0": 1, "1": 1, "2": 1}
        (done,) = clean(topic)
        assert sum(done.removed.values()) == 0
        assert "would be left" not in web.get("/topics/t").text

    def test_survivors_may_be_counted_again_for_more_may_go_with_time(
        self, web: TestClient, users: Topic, clock: ManualClock
    ) -> None:
        clean(users)
        asked = "/api/topics/users/partitions/0/survivors"
        before = sum(web.get(asked).json()["segments"].values())
        clock.advance(25 * HOUR_MS)
        assert sum(web.get(asked).json()["segments"].values()) == before - 1  # the tombstone

    def test_no_scan_goes_on_when_the_page_is_ended(
        self, web: TestClient, users: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scans: Scans = web.app.state.parts.scans  # type: ignore[attr-defined]
        read = FileReader.read

        def ended(reader: FileReader, *asked: Any) -> Any:
            scans.end()
            return read(reader, *asked)

        with monkeypatch.context() as patched:
            patched.setattr(FileReader, "read", ended)
            for path in (
                "/api/topics/users/keys",
                "/api/topics/users/partitions/0/survivors",
                "/api/topics/users/plan?force=true&count=true",
                "/topics/users/records?view=latest",
            ):
                scans._are_over.clear()
                answer = web.get(path)
                assert (answer.status_code, "is being ended" in answer.text) == (503, True), path
        assert web.get("/api/topics/users/keys").status_code == 503  # nor does another go on

    def test_survivors_below_log_start(self, web: TestClient, local: Store) -> None:
        topic = local.create_topic("t", config={"cleanup.policy": "compact,delete"})
        write(topic, "a=1 a=2 b=1 c=1 d=1 | a=3*")
        topic.delete_records(0, before=3)
        asked = "/api/topics/t/partitions/0/survivors"
        assert web.get(asked).json()["segments"] == {"0": 2, "5": 1}
        page = web.get("/topics/t?partition=0&segment=0").text
        assert "3 of 3 records would be left" in page
        assert "offsets 3 to 4 · at most 2 records" in page
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

    def test_few_scans_at_once(
        self, web: TestClient, users: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else some that nobody waits for would keep all pages from everybody."""
        monkeypatch.setattr("lastword.ui.scans._PATIENCE_S", 0)
        scanning = web.app.state.parts.scans  # type: ignore[attr-defined]
        scans = ("/api/topics/users/keys", "/api/topics/users/partitions/0/survivors", "/topics/users/records?view=latest", "/topics/users/records?view=key&key=a", "/topics/users/records/0/0?last=true")  # fmt: skip
        with scanning.one(), scanning.one():
            for path in scans:
                refused = web.get(path)
                assert (refused.status_code, "try again" in refused.text) == (429, True)
            for path in ("/topics/users", "/topics/users/records/0/0"):  # these look no key up
                page = web.get(path)
                assert (page.status_code, "superseded" in page.text) == (200, False)
        for path in scans:
            assert web.get(path).status_code == 200
