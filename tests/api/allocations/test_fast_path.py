"""The short route (orchestrator/edge/fast_paths/public.py) answers exactly as the endpoint does."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from benchmarks.seeding import BenchTenant, seed_fleet, seed_tenants
from orchestrator.app import build_services, public_application
from orchestrator.edge.edge import Edge
from orchestrator.edge.fast_paths.public import FastPath
from orchestrator.edge.routes import PUBLIC_WRITES
from orchestrator.http.asgi import App, Receive, Scope, Send
from orchestrator.http.services import Services
from tests.api.calling import insert_admin_key
from tests.support.public_api import settings_over

VOLATILE = {
    "allocation_id", "correlation_id", "requested_at", "server_time", "reservation_id", "resources", "held_at", "starts_at",
    "expires_at", "confirmed_at", "waits", "conflicts",
}  # fmt: skip


class _Route:
    """A client whose requests go one of the routes."""

    def __init__(self, http: httpx.Client, name: str) -> None:
        self._http = http
        self._name = name

    def post(self, content: Any, headers: dict[str, str], query: str = "", path: str = "allocations") -> httpx.Response:
        """A create, or a write to another path."""
        sent = {**headers, "x-route": self._name}
        return self._http.post(f"/api/v1/{path}{query}", content=content, headers=sent)


@dataclass(frozen=True)
class Routes:
    """Both routes over the same parts, and a fast path that has nowhere to pass a request on to."""

    short: _Route
    long: _Route
    only_short: _Route
    tenant: BenchTenant
    admin_key: str


def _edge(app: App, services: Services) -> Edge:
    return Edge(app, zone="public", body_bytes_max=services.settings.body_bytes_max, in_flight_max=100)


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("the request was passed on")


@pytest.fixture
def routes(database_url: str, tmp_path: Path) -> Iterator[Routes]:
    """A small fleet behind both routes, in one event loop."""
    seed_fleet(database_url, 20)
    (tenant,) = seed_tenants(database_url, 1)
    services = build_services(settings_over(database_url, tmp_path))
    full = public_application(services)
    apps: dict[str, App] = {
        "short": FastPath(full, services, PUBLIC_WRITES),
        "long": full,
        "only_short": FastPath(_nowhere, services, PUBLIC_WRITES),
    }

    async def by_host(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await full(scope, receive, send)
            return
        await edges[dict(scope["headers"])[b"x-route"].decode()](scope, receive, send)

    edges = {name: _edge(app, services) for name, app in apps.items()}
    with TestClient(by_host, raise_server_exceptions=False) as http:
        yield Routes(
            _Route(http, "short"),
            _Route(http, "long"),
            _Route(http, "only_short"),
            tenant=tenant,
            admin_key=insert_admin_key(database_url),
        )
        assert http.portal is not None
        http.portal.call(services.context.database.close)


def _body(tenant: BenchTenant, **changes: Any) -> bytes:
    body = {"sku": "h100.slice", "gpus": 1, "region": "eu-1", "ssh_key_ids": [tenant.ssh_key_id], **changes}
    return json.dumps({name: value for name, value in body.items() if value != "absent"}).encode()


def _headers(tenant: BenchTenant, **changes: str) -> dict[str, str]:
    return {"authorization": f"Bearer {tenant.api_key}", "content-type": "application/json", **changes}


def _stable(answer: httpx.Response) -> tuple[int, str, dict[str, Any]]:
    body = {name: value for name, value in answer.json().items() if name not in VOLATILE}
    return answer.status_code, answer.headers["content-type"], body


def test_both_ways_answer_the_same(routes: Routes) -> None:
    tenant = routes.tenant
    good, headers = _body(tenant), _headers(tenant)
    requests: list[tuple[Any, dict[str, str], str]] = [
        (good, headers, ""),
        (good, headers, "?unknown=1"),
        (_body(tenant, name="a", labels={"team": "research"}, user_data="#!/bin/sh", image="ubuntu-24.04"), headers, ""),
        (_body(tenant, gpus=3), headers, ""),
        (_body(tenant, sku="nothing"), headers, ""),
        (_body(tenant, image="nothing"), headers, ""),
        (_body(tenant, ssh_key_ids=[str(uuid.uuid4())]), headers, ""),
        (_body(tenant, ssh_key_ids=[tenant.ssh_key_id] * 2), headers, ""),
        (_body(tenant, ssh_key_ids=[]), headers, ""),
        (_body(tenant, gpus="1"), headers, ""),
        (_body(tenant, gpus=1.0), headers, ""),
        (_body(tenant, gpus=2**40), headers, ""),
        (_body(tenant, gpus=True), headers, ""),
        (_body(tenant, region="absent"), headers, ""),
        (_body(tenant, more=1), headers, ""),
        (_body(tenant, labels={"a": 1}), headers, ""),
        (_body(tenant, name="a\u0000b"), headers, ""),
        (b'{"sku": "\\ud800"}', headers, ""),
        (good + b"x", headers, ""),
        (b"", headers, ""),
        (b"[]", headers, ""),
        (good.decode().encode("utf-16"), headers, ""),
        (good, _headers(tenant, **{"content-type": "application/json; charset=utf-8"}), ""),
        (good, _headers(tenant, **{"content-type": "text/plain"}), ""),
        (good, _headers(tenant, authorization="Bearer unknown"), ""),
        (good, _headers(tenant, authorization="Basic unknown"), ""),
        (good, _headers(tenant, authorization=f"Bearer {routes.admin_key}"), ""),
        (_body(tenant, gpus="1"), _headers(tenant, authorization="Bearer unknown"), ""),
        (good, _headers(tenant, **{"idempotency-key": "k" * 256}), ""),
        (good, _headers(tenant, **{"idempotency-key": "k" * 258}), ""),
        (good, _headers(tenant, **{"idempotency-key": "\x7f"}), ""),
        (b"x" * 300_000, headers, ""),
    ]  # fmt: skip
    for content, sent, query in requests:
        short, long = routes.short.post(content, sent, query), routes.long.post(content, sent, query)
        assert _stable(short) == _stable(long), (content[:200], sent)
    assert routes.short.post(good, headers).status_code == 201


def test_a_create_in_order_goes_the_short_way_in_pieces_too(routes: Routes) -> None:
    body = _body(routes.tenant)
    pieces = iter([body[:10], body[10:20], body[20:]])

    assert routes.only_short.post(body, _headers(routes.tenant)).status_code == 201
    assert routes.only_short.post(pieces, _headers(routes.tenant)).status_code == 201


def test_what_is_not_in_order_is_passed_on_whole(routes: Routes) -> None:
    body = _body(routes.tenant, gpus="1")
    pieces = iter([body[:10], body[10:20], body[20:]])

    answer = routes.short.post(pieces, _headers(routes.tenant))

    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "gpus")


@pytest.mark.parametrize(("first", "second"), [("short", "long"), ("long", "short")])
def test_a_key_used_one_way_is_known_the_other_way(routes: Routes, first: str, second: str) -> None:
    headers = _headers(routes.tenant, **{"idempotency-key": "one"})
    body = _body(routes.tenant, labels={"b": "2", "a": "1"})

    made = getattr(routes, first).post(body, headers)
    again = getattr(routes, second).post(_body(routes.tenant, labels={"a": "1", "b": "2"}), headers)
    other = getattr(routes, second).post(_body(routes.tenant, labels={"a": "1", "b": "3"}), headers)

    assert made.status_code == 201
    assert (again.json(), again.headers["idempotent-replayed"]) == (made.json(), "true")
    assert other.json()["code"] == "operation_conflict"


def _hold(**changes: Any) -> bytes:
    body = {"sku": "h100.slice", "gpus": 1, "region": "eu-1", "holder_id": "me", **changes}
    return json.dumps({name: value for name, value in body.items() if value != "absent"}).encode()


def test_holds_and_confirms_are_answered_the_same(routes: Routes) -> None:
    headers, admins = _headers(routes.tenant), _headers(routes.tenant, authorization=f"Bearer {routes.admin_key}")
    template = {"ssh_key_ids": [routes.tenant.ssh_key_id]}
    for content, sent, query in [
        (_hold(), headers, ""),
        (_hold(), headers, "?unknown=1"),
        (_hold(), admins, ""),
        (_hold(holder_id=""), headers, ""),
        (_hold(ttl_seconds=0), headers, ""),
        (_hold(ttl_seconds="60"), headers, ""),
        (_hold(starts_at="yesterday"), headers, ""),
        (_hold(ends_at="2001-01-01T00:00:00Z"), headers, ""),
        (_hold(resources=["slot:absent:0"]), headers, ""),
        (_hold(sku="absent", gpus="absent", region="absent", resources=["seat-1"]), headers, ""),
        (_hold(allocation=template), headers, ""),
        (_hold(allocation={**template, "labels": {"a": 1}}), headers, ""),
        (_hold(), _headers(routes.tenant, **{"idempotency-key": "\x7f"}), ""),
        (b"", headers, ""),
    ]:  # fmt: skip
        short, long = (route.post(content, sent, query, "reservations") for route in (routes.short, routes.long))
        assert _stable(short) == _stable(long), (content, sent, query)

    for holder, sent, query in [
        ("me", headers, ""),
        ("me", headers, "?unknown=1"),
        ("other", headers, ""),
        ("", headers, ""),
        ("me", admins, ""),
        ("me", admins, f"?tenant_id={routes.tenant.tenant_id}"),
    ]:  # fmt: skip
        answers = []
        for route in (routes.short, routes.long):
            held = route.post(_hold(), headers, "", "reservations").json()["reservation_id"]
            answers.append(route.post(json.dumps({"holder_id": holder}), sent, query, f"reservations/{held}/confirm"))
        assert _stable(answers[0]) == _stable(answers[1]), (holder, sent, query)
    unknown = f"reservations/{uuid.uuid4()}/confirm"
    short, long = (route.post(b'{"holder_id": "me"}', headers, "", unknown) for route in (routes.short, routes.long))
    assert _stable(short) == _stable(long)


def test_holds_and_confirms_in_order_go_the_short_way(routes: Routes) -> None:
    headers = _headers(routes.tenant)
    held = routes.only_short.post(_hold(), headers, "", "reservations")
    path = f"reservations/{held.json()['reservation_id']}/confirm"
    confirmed = routes.only_short.post(b'{"holder_id": "me"}', headers, "", path)
    again = routes.long.post(b'{"holder_id": "me"}', headers, "", path)

    assert (held.status_code, confirmed.json()["result"], again.json()["result"]) == (201, "ok", "noop")
    assert routes.long.post(b'{"holder_id": "me"}', {**headers, "idempotency-key": "c"}, "", path).status_code == 200
    replayed = routes.only_short.post(b'{"holder_id": "me"}', {**headers, "idempotency-key": "c"}, "", path)
    assert replayed.headers["idempotent-replayed"] == "true"
