"""Who may do what with the page."""

from __future__ import annotations

import base64
import os
import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from lastword.errors import InvalidArgumentError
from lastword.store import Store
from lastword.topic import Topic
from lastword.ui.guard import TOKEN_HEADER, Access, is_loopback
from lastword.ui.serve import serve
from tests.web import TOKEN, WITH_TOKEN, client, in_process

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
