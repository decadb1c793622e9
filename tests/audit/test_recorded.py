"""Every write leaves exactly one audit row, with its caller, object and outcome; so does each privileged or refused read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts

from migrations.roles import Role
from orchestrator.edge.edge import OPEN_PATHS
from orchestrator.edge.routes import PUBLIC_ROUTES
from orchestrator.http.audited.actions import ACTIONS, audited_action
from tests.api.calling import Caller, Place, at_once, fresh, new_node, new_place, new_tenant, one_gpu, rent, ssh_key
from tests.api.reservations.reserving import HOLDER, UNKNOWN_ID
from tests.audit.reading import newest, rows_after
from tests.support.public_api import PublicApi, serving

WRITES = sorted(
    (method, str(route.path))
    for route in iter_route_contexts(PUBLIC_ROUTES)
    for method in getattr(route, "methods", None) or ()
    if method not in ("GET", "HEAD", "OPTIONS") and route.path not in OPEN_PATHS
)


def test_every_write_has_a_named_action() -> None:
    assert sorted(ACTIONS) == sorted(f"{method} {path}" for method, path in WRITES)
    for method, path in WRITES:
        concrete = re.sub(r"\{\w+\}", "x", path)
        assert audited_action(method, concrete).action == ACTIONS[f"{method} {path}"]


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_each_write_leaves_one_row_whatever_comes_of_it(api: PublicApi, admin: Caller, method: str, path: str) -> None:
    caller = admin if path.startswith("/api/v1/admin/") else new_tenant(admin)
    after = newest(api)
    concrete = re.sub(r"\{(?!name|policy|consumer)\w+\}", UNKNOWN_ID, path)
    concrete = re.sub(r"\{\w+\}", fresh("thing"), concrete)
    answer = caller.http.request(
        method, concrete, json={"name": fresh("thing")},
        headers={"authorization": f"Bearer {caller.key}", "user-agent": "probe/1", "x-request-id": "probe-1"},
    )  # fmt: skip
    (row,) = rows_after(api, after)
    assert (row.action, row.status) == (ACTIONS[f"{method} {path}"], answer.status_code)
    assert row.code == (answer.json()["code"] if answer.status_code >= 400 else "ok")
    assert (row.user_agent, row.request_id, row.source) == ("probe/1", "probe-1", None)
    assert (row.role, row.tenant_id) == (("admin", None if caller is admin else caller.tenant_id))


def _performed(api: PublicApi, admin: Caller, tenant: Caller, place: Place) -> list[tuple[Caller, str, str, Any, str]]:
    """Requests that succeed: caller, method, path, body, action."""
    held = tenant.make(
        "/reservations",
        {"resources": [admin.make("/admin/resources", {"id": fresh("seat")})["id"]], "holder_id": HOLDER},
    )["reservation_id"]
    other = tenant.make(
        "/reservations",
        {"resources": [admin.make("/admin/resources", {"id": fresh("seat")})["id"]], "holder_id": HOLDER},
    )["reservation_id"]
    seat = admin.make("/admin/resources", {"id": fresh("seat")})["id"]
    rented, forced = rent(tenant, place)["allocation_id"], rent(tenant, place)["allocation_id"]
    node = new_node(admin, place.region)["id"]
    return [
        (tenant, "POST", "/allocations", one_gpu(tenant, place), "allocation.create"),
        (tenant, "PATCH", f"/allocations/{rented}", {"name": "n"}, "allocation.update"),
        (tenant, "POST", f"/allocations/{rented}/release", None, "allocation.release"),
        (admin, "POST", f"/admin/allocations/{forced}/force-release", {"reason": "r"}, "allocation.force_release"),
        (tenant, "POST", "/reservations", {"resources": [seat], "holder_id": HOLDER}, "reservation.hold"),
        (tenant, "POST", f"/reservations/{held}/confirm", {"holder_id": HOLDER}, "reservation.confirm"),
        (tenant, "POST", f"/reservations/{other}/cancel", {"holder_id": HOLDER}, "reservation.cancel"),
        (tenant, "POST", "/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()}, "ssh_key.create"),
        (admin, "POST", "/admin/tenants", {"name": fresh("tenant")}, "tenant.create"),
        (admin, "PUT", f"/admin/regions/{place.region}", {"display_name": "R"}, "region.put"),
        (admin, "PATCH", f"/admin/nodes/{node}", {"address": None}, "node.update"),
        (admin, "POST", f"/admin/nodes/{node}/enrolment-token", {}, "node.create_enrolment_token"),
    ]  # fmt: skip


def test_a_performed_write_leaves_one_row_and_its_repetition_none(
    api: PublicApi, admin: Caller, tenant: Caller, place: Place
) -> None:
    for caller, method, path, body, action in _performed(api, admin, tenant, place):
        after, key = newest(api), fresh("op")
        first = caller.call(method, path, body, key=key)
        assert first.status_code < 300, (action, first.text)
        (row,) = rows_after(api, after)
        assert (row.action, row.status, row.operation_key) == (action, first.status_code, key)
        assert row.code in ("ok", "noop")
        assert re.fullmatch(r"[a-z-]+/\S+", row.subject), action
        again = caller.call(method, path, body, key=key)
        assert again.headers["idempotent-replayed"] == "true", action
        assert len(rows_after(api, after)) == 1, f"the repetition of {action} was recorded"


def test_a_create_is_recorded_with_its_allocation(api: PublicApi, tenant: Caller, place: Place) -> None:
    body, after = one_gpu(tenant, place), newest(api)
    made = tenant.make("/allocations", body)
    (row,) = rows_after(api, after)
    assert row.subject == f"allocations/{made['allocation_id']}"
    assert row.correlation_id == made["correlation_id"]
    assert (row.kind, row.tenant_id) == ("tenant", tenant.tenant_id)


def test_creates_of_a_batch_leave_one_row_each(api: PublicApi, tenant: Caller, place: Place) -> None:
    body, after = one_gpu(tenant, place), newest(api)
    answers = at_once(*[lambda: tenant.call("POST", "/allocations", body)] * 12)
    rows = rows_after(api, after)
    assert sorted(row.status or 0 for row in rows) == sorted(answer.status_code for answer in answers)
    made = {f"allocations/{answer.json()['allocation_id']}" for answer in answers if answer.status_code == 201}
    assert {row.subject for row in rows if row.status == 201} == made
    assert len(made) == 8


def test_a_refused_read_and_a_privileged_one_are_recorded(api: PublicApi, admin: Caller, tenant: Caller) -> None:
    after = newest(api)
    assert tenant.call("GET", "/admin/tenants").status_code == 403
    assert tenant.call("GET", "/allocations").status_code == 200
    assert admin.call("GET", "/admin/allocations").status_code == 200
    assert admin.call("GET", "/skus").status_code == 200
    recorded = [(row.role, row.action, row.subject, row.status, row.code) for row in rows_after(api, after)]
    assert recorded == [
        ("admin", "tenant.read", "tenants", 403, "forbidden"),
        ("admin", "allocation.read", "allocations", 200, "ok"),
    ]


def test_a_query_that_fences_a_key_is_recorded(api: PublicApi, tenant: Caller) -> None:
    after, key = newest(api), fresh("unused")
    for _ in range(2):
        assert tenant.get(f"/operations/{key}")["state"] == "unknown"
    (row,) = rows_after(api, after)
    assert (row.action, row.operation_key, row.tenant_id) == ("operation.fence", key, tenant.tenant_id)


def test_a_stranger_leaves_no_row(api: PublicApi, stranger: Caller) -> None:
    after = newest(api)
    assert stranger.call("POST", "/allocations", {}).status_code == 401
    assert rows_after(api, after) == []


@pytest.mark.parametrize(("peer", "recorded"), [("10.0.0.1", "203.0.113.7"), ("192.0.2.9", "192.0.2.9")])
def test_the_address_is_the_callers_which_only_a_trusted_proxy_may_name(
    database_url: str, tmp_path: Path, peer: str, recorded: str
) -> None:
    with serving(database_url, tmp_path, Role.PUBLIC_API, peer, ["10.0.0.0/8"]) as api:
        api.admin.http.headers["x-forwarded-for"] = "203.0.113.7"
        tenant, place = new_tenant(api.admin), new_place(api.admin, api.database)
        body, after = one_gpu(tenant, place), newest(api)
        assert tenant.call("POST", "/allocations", body).status_code == 201
        assert tenant.call("POST", "/ssh-keys", {}).status_code == 422
        assert tenant.call("GET", "/admin/tenants").status_code == 403
        assert api.admin.call("GET", "/admin/tenants").status_code == 200
        assert [row.source for row in rows_after(api, after)] == [recorded] * 4


def test_a_user_agent_is_bounded_and_without_control_characters(api: PublicApi, tenant: Caller) -> None:
    after = newest(api)
    for sent in (b"a\x1b[31mred", b"x" * 1_000):
        headers = [(b"authorization", f"Bearer {tenant.key}".encode()), (b"user-agent", sent)]
        tenant.http.request("POST", "/api/v1/ssh-keys", json={}, headers=headers)
    assert [row.user_agent for row in rows_after(api, after)] == ["a\\x1b[31mred", "x" * 200]
