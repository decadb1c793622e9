"""Polls and heartbeats in order are answered beside the framework, everything else by it, and both answer the same."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from node_agent.protocol import KNOWN_TASKS_MAX, PAYLOAD_TYPE
from node_agent.wire.fields import UNKNOWN_MEMBERS
from orchestrator.app import build_services, node_application
from orchestrator.edge.edge import Edge
from orchestrator.edge.fast_paths.node import NodeFastPath
from orchestrator.http.asgi import App, Receive, Scope, Send
from orchestrator.nodes.deploy_systems.identity import PEER
from tests.allocations.seeding import connect, seed
from tests.support.public_api import settings_over

BEAT: dict[str, Any] = {"agent_version": "1", "driver": "noop", "allocations": []}
POLL = "/node/v1/tasks/wait?timeout_seconds=0"
JSON = {"content-type": "application/json"}
_CERTIFICATE = """
insert into node_certificates (serial, node_id, node_epoch, key_sha256, not_before, not_after)
values ('aa', %s, 1, sha256('k'), clock_timestamp(), clock_timestamp() + interval '1 day')
"""

_DISPATCHED = """
insert into node_tasks (id, node_id, node_epoch, type, fence, envelope, not_before, expires_at, state, dispatched_at)
values (%s, %s, 1, 'diag.health_probe', %s, '{}', now(), now() + interval '1 hour', 'dispatched', now())
"""


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("the request was passed on")


class Routes:
    """One node's requests: by the short path alone, by the framework alone, and as the listener serves them."""

    def __init__(self, http: TestClient) -> None:
        self._http = http

    def ask(self, route: str, method: str, path: str, **options: Any) -> httpx.Response:
        """The response of this route."""
        headers = {**options.pop("headers", {}), "x-route": route}
        response: httpx.Response = self._http.request(method, path, headers=headers, **options)
        return response


@pytest.fixture
def node(database_url: str) -> uuid.UUID:
    seeded = seed(database_url)
    with connect(database_url) as connection:
        connection.execute(_CERTIFICATE, (seeded.nodes[0].id,))
    return seeded.nodes[0].id


@pytest.fixture
def routes(database_url: str, node: uuid.UUID, tmp_path: Path) -> Iterator[Routes]:
    settings = settings_over(database_url, tmp_path).model_copy(update={"sandbox_allowed": True})
    services = build_services(settings)
    full = node_application(services)
    apps: dict[str, App] = {
        "short": NodeFastPath(_nowhere, services), "long": full, "both": NodeFastPath(full, services),
    }  # fmt: skip
    peer = {"subjectAltName": (("URI", f"spiffe://{settings.trust_domain}/node/{node}"),), "serialNumber": "AA"}
    edges = {
        name: Edge(app, zone="node", body_bytes_max=settings.body_bytes_max, in_flight_max=10)
        for name, app in apps.items()
    }

    async def by_header(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await full(scope, receive, send)
            return
        scope["state"] = {**scope.get("state", {}), PEER: peer}
        await edges[dict(scope["headers"])[b"x-route"].decode()](scope, receive, send)

    with TestClient(by_header, raise_server_exceptions=False) as http:
        yield Routes(http)
        assert http.portal is not None
        http.portal.call(services.context.database.close)


def _stable(response: httpx.Response) -> tuple[int, dict[str, str], Any]:
    headers = {name: response.headers.get(name, "") for name in ("content-type", "cache-control")}
    body = response.json()
    assert body.pop("server_time", None) or response.status_code != 200
    return response.status_code, headers, {name: body[name] for name in body if name != "request_id"}


def test_both_ways_answer_the_same(routes: Routes, database_url: str, node: uuid.UUID) -> None:
    with connect(database_url) as connection:
        envelope = {"payloadType": PAYLOAD_TYPE, "payload": "e30=", "signatures": [{"keyid": "k", "sig": "AA=="}]}
        connection.execute(
            "insert into node_tasks"
            " (id, node_id, node_epoch, type, fence, envelope, not_before, expires_at, state, dispatched_at)"
            " values (%s, %s, 1, 'diag.health_probe', 1, %s, now(), now() + interval '1 hour', 'dispatched', now())",
            (uuid.uuid4(), node, json.dumps(envelope)),
        )
    for method, path, content in (
        ("GET", POLL, None),
        ("GET", f"{POLL}&known={uuid.uuid4()}&known={uuid.uuid4()}", None),
        ("POST", "/node/v1/heartbeat", BEAT),
        ("POST", "/node/v1/heartbeat", {**BEAT, "driver": "redfish"}),
    ):
        answers = [_stable(routes.ask(route, method, path, json=content)) for route in ("short", "long", "both")]
        assert answers[0] == answers[1] == answers[2]
    with connect(database_url) as connection:
        for change in ("identity_conflict_at = now()", "state = 'retired'"):
            connection.execute(f"update nodes set {change} where id = %s".encode(), (node,))
            for method, path in (("GET", POLL), ("POST", "/node/v1/heartbeat")):
                content = BEAT if method == "POST" else None
                answers = [_stable(routes.ask(route, method, path, json=content)) for route in ("short", "long")]
                assert answers[0] == answers[1]
                assert answers[0][0] in (401, 403)


@pytest.mark.parametrize(
    "query",
    [
        "timeout_seconds=x", "timeout_seconds=-1", "timeout_seconds=1e9", "timeout_seconds=nan", "timeout_seconds=", "knwon=1",
        "timeout_seconds=0&timeout_seconds=x", "known=1", "&".join([f"known={uuid.UUID(int=0)}"] * (KNOWN_TASKS_MAX + 1)),
        "timeout_seconds=%00", "known=%ff",
    ],
)  # fmt: skip
def test_a_poll_that_is_not_in_order_is_refused_as_the_endpoint_refuses_it(routes: Routes, query: str) -> None:
    path = f"/node/v1/tasks/wait?{query}"
    long, both = (_stable(routes.ask(route, "GET", path)) for route in ("long", "both"))
    assert long == both
    assert long[0] == 422


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b"", JSON), (b"{", JSON), (b"[]", JSON), (b'{"agent_version": "1"}', JSON), (b"\xff", JSON),
        (json.dumps({**BEAT, **{f"more{n}": 1 for n in range(40)}}).encode(), JSON),
        (json.dumps(BEAT).encode(), {"content-type": "text/plain"}),
    ],
)  # fmt: skip
def test_a_heartbeat_that_is_not_in_order_is_refused_as_the_endpoint_refuses_it(
    routes: Routes, content: bytes, headers: dict[str, str]
) -> None:
    long, both = (
        _stable(routes.ask(route, "POST", "/node/v1/heartbeat", content=content, headers=headers))
        for route in ("long", "both")
    )
    assert long == both
    assert 400 <= long[0] < 500


HELD: dict[str, Any] = {"allocation_id": str(uuid.UUID(int=5)), "slots": [0], "fence": 1}


def unknown_members(message: str) -> float:
    """How many unknown members of this message the process has counted."""
    return float(UNKNOWN_MEMBERS.labels(message)._value.get())


def test_a_heartbeat_of_a_newer_agent_is_recorded_without_what_is_unknown_and_that_is_counted(
    routes: Routes, database_url: str, node: uuid.UUID
) -> None:
    first = routes.ask("both", "POST", "/node/v1/heartbeat", json=BEAT)
    held = {**HELD, "color": "red", "first_boot": {"status": "done", "took_seconds": 7}}
    inventory = {"gathered_after": first.json()["server_time"], "allocations": [held], "paint": []}
    newer = {**BEAT, "agent_version": "2", "weather": {"a": [1]}, "inventory": inventory}
    before = {name: unknown_members(name) for name in ("Heartbeat", "HeldInventory", "HeldAllocation", "FirstBoot")}
    answer = routes.ask("both", "POST", "/node/v1/heartbeat", json=newer)
    assert answer.status_code == 200, answer.text
    assert {name: unknown_members(name) - count for name, count in before.items()} == dict.fromkeys(before, 1.0)
    with connect(database_url) as connection:
        found = connection.execute("select agent_version, inventory from nodes where id = %s", (node,)).fetchone()
    assert found is not None
    assert found[0] == "2"
    assert "color" not in json.dumps(found[1])


def test_a_report_of_a_newer_agent_ends_its_task(routes: Routes, database_url: str, node: uuid.UUID) -> None:
    tasks = [uuid.uuid4(), uuid.uuid4()]
    with connect(database_url) as connection:
        for number, task in enumerate(tasks):
            connection.execute(_DISPATCHED, (task, node, number + 1))
    reports = [
        {"fence": 1, "outcome": "completed", "result": {"gpus": []}, "mood": "good"},
        {
            "fence": 2,
            "outcome": "failed",
            "failure": {"code": "paint_short", "detail": "no red is left", "color": "red"},
        },
    ]
    for task, report in zip(tasks, reports, strict=True):
        answer = routes.ask("both", "POST", f"/node/v1/tasks/{task}/result", json=report)
        assert (answer.status_code, answer.json()) == (200, {"applied": True, "reason": None}), answer.text
    with connect(database_url) as connection:
        rows = connection.execute(
            "select state, failure_code, failure_detail from node_tasks order by fence"
        ).fetchall()
    assert rows == [("completed", None, None), ("failed", "driver_error", "paint_short: no red is left")]


def test_an_unforeseen_error_is_500_and_a_problem(routes: Routes, database_url: str) -> None:
    with connect(database_url) as connection:
        connection.execute("alter table node_certificates rename to gone")
    for method, path in (("GET", POLL), ("POST", "/node/v1/heartbeat")):
        refused = routes.ask("short", method, path, json=BEAT if method == "POST" else None)
        assert (refused.status_code, refused.headers["content-type"]) == (500, "application/problem+json")
