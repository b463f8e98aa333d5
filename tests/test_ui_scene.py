"""The scene, without a browser: the real cleaner, step by step."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from lastword.ui import scene, scenes

HOUR_MS = 3_600_000


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

    def test_no_other_step_is_taken_than_the_one_that_was_meant(self, web: TestClient) -> None:
        state = web.post("/api/scene", json={}).json()
        assert self.play(web, state, "step", phase="idle")["phase"] == "planned"
        late = self.play(web, state, "step", phase="idle")  # from a tab that has not seen it
        assert (late["phase"], "another tab" in late["message"]) == ("planned", True)
        assert self.play(web, state, "step", phase="planned")["phase"] == "marked"

    def test_only_a_pass_that_is_under_way_has_a_cleaner(self, web: TestClient) -> None:
        before = set(threading.enumerate())

        def hearts() -> int:
            return sum("_beat" in t.name for t in set(threading.enumerate()) - before)

        state = web.post("/api/scene", json={}).json()
        beating = [hearts()]
        for _ in range(4):
            state = self.play(web, state, "step")
            beating.append(hearts())
        assert beating == [0, 0, 1, 1, 0]

    def test_what_turns_text_around_is_spelled(self, web: TestClient) -> None:
        state = web.post("/api/scene", json={}).json()
        state = self.play(web, state, "send", key="\u202eK", value="\u202eV")
        assert state["records"][-1]["key"] == "\\u202eK"
        assert state["latest"]["\\u202eK"] == "\\u202eV"
        assert "\u202e" not in json.dumps(state, ensure_ascii=False)

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
