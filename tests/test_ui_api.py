"""The API does what its description says."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from starlette.testclient import TestClient

from lastword.store import Store
from lastword.topic import Topic
from lastword.ui.app import make_app
from lastword.ui.guard import Access
from tests.notation import clean
from tests.soak import times
from tests.web import WITH_TOKEN, in_process, served

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
            described = schemathesis.openapi.from_url(f"{address}/openapi.json", timeout=150)
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
                headers=headers,
                excluded_checks=[positive_data_acceptance, negative_data_rejection],
                timeout=150,
            )
            found.add(answer.status_code)

        check()
        return found


def client_of(address: str) -> httpx2.Client:
    return httpx2.Client(base_url=address, timeout=150)


def test_a_fault_of_ours_is_answered_in_words(
    local: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    web = TestClient(make_app(local, Access(), in_process), "http://127.0.0.1", raise_server_exceptions=False)  # fmt: skip
    answer = web.post("/api/scene", json={})
    assert (answer.status_code, answer.json()["error"]) == (500, "FileNotFoundError")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
