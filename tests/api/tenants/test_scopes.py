"""API keys with scopes: each route refuses a key without its scope, and no key makes one that may do more than itself."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from fastapi import APIRouter
from fastapi.routing import iter_route_contexts
from starlette.testclient import TestClient, WebSocketDenialResponse

from orchestrator.edge.routes import PUBLIC_ROUTES, declare_scopes
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.refusals import ScopeRequired
from orchestrator.tenants.required_roles import check_roles, required_roles, required_scope, requires
from orchestrator.tenants.roles import EVERY_OPERATOR, TENANT_READERS
from orchestrator.tenants.scopes import KNOWN, Access, Noun, Scope, covers
from tests.api.calling import Caller, fresh, new_tenant, problem, refusal
from tests.api.role_matrix import ask, matrix, scopes_of_routes
from tests.audit.reading import newest, rows_after
from tests.support.public_api import PublicApi


def scoped_key(admin: Caller, tenant_id: str | None, scopes: list[str] | None, role: str = "admin") -> Caller:
    """A new key with these scopes, of a tenant or of operators."""
    body = {"name": fresh("key"), "role": role, "scopes": scopes, "tenant_id": tenant_id}
    made = admin.make("/admin/api-keys", {name: value for name, value in body.items() if value is not None})
    assert made["scopes"] == (None if scopes is None else sorted(scopes))
    return Caller(admin.http, made["key"], tenant_id)


def without(scope: str) -> list[str]:
    """Every scope but those that would do for this one."""
    return [known for known in KNOWN if not covers([known], scope)]


def test_each_endpoint_needs_its_scope_and_no_other() -> None:
    scopes: set[Scope] = set()
    for route in iter_route_contexts(PUBLIC_ROUTES):
        assert route.endpoint is not None
        roles = required_roles(route.endpoint)
        scope = None if roles is None else required_scope(route.endpoint)
        if roles is None or scope is None:
            continue
        scopes.add(scope)
        tenant_id = uuid.uuid4() if roles.tenant else None
        role = next(iter(roles.tenant or roles.operator))

        def principal(held: list[str] | None, role: str = role, tenant_id: uuid.UUID | None = tenant_id) -> Principal:
            return Principal(role, uuid.uuid4(), tenant_id, scopes=None if held is None else frozenset(held))

        with pytest.raises(ScopeRequired) as refused:
            check_roles(route.endpoint, principal(without(str(scope))))
        assert refused.value.extra["scopes_required"] == scope.sufficient
        for enough in ([str(scope)], [f"{scope.noun}:write"], None):
            check_roles(route.endpoint, principal(enough))
    assert {scope.noun for scope in scopes} == set(Noun) - {Noun.ACCOUNT}


def test_the_page_names_a_scope_for_each_route_but_that_of_the_caller() -> None:
    named = scopes_of_routes()
    assert [route for route, scope in named.items() if scope == "-"] == [("GET", "/api/v1/me")]
    assert named["GET", "/v1/status"] == "log:write", "it fences an unused key"
    assert named["GET", "/api/v1/operations/{key:path}"] == "operations:write"
    assert named["WS", "/api/v1/allocations/{allocation_id}/console/attach"] == "allocations:write"
    assert named["WS", "/api/v1/notifications"] == "log:read"
    assert named["POST", "/api/v1/allocations/{allocation_id}/release"] == "allocations:write"
    assert named["POST", "/api/v1/reservations/{reservation_id}/confirm"] == "reservations:write"


def test_every_route_refuses_a_key_without_its_scope_and_serves_one_with_it(admin: Caller) -> None:
    tenant_id = new_tenant(admin).tenant_id
    admin.call("PUT", f"/admin/tenants/{tenant_id}/quota", {"limits": {"api_keys": 1_000}})
    keys: dict[tuple[str | None, tuple[str, ...]], Caller] = {}

    def key(owner: str | None, scopes: list[str]) -> Caller:
        found = (owner, tuple(scopes))
        return keys.setdefault(found, keys.get(found) or scoped_key(admin, owner, scopes))

    wrong = []
    scopes = scopes_of_routes()
    for method, path, cells in matrix():
        scope = scopes[method, path]
        if scope == "-":
            continue
        owner = None if cells["operator", "admin"] == "yes" else tenant_id
        noun, _, access = scope.partition(":")
        sufficient = [scope] if access == "write" else [f"{noun}:read", f"{noun}:write"]
        refused = ask(key(owner, without(scope)), method, path)
        if refusal(refused) != (403, "scope_required") or refused.json()["scopes_required"] != sufficient:
            wrong.append((method, path, "without", refused.status_code, refused.text))
        served = ask(key(owner, [scope]), method, path)
        if served.status_code >= 400 and served.json()["code"] in ("scope_required", "role_required", "internal"):
            wrong.append((method, path, "with", served.status_code, served.text))
    assert wrong == []


def test_a_new_tag_without_a_noun_and_a_route_without_a_tag_cannot_be_served() -> None:
    def routed(declare: Callable[[APIRouter], None]) -> APIRouter:
        router = APIRouter()
        declare(router)
        return router

    def untagged(router: APIRouter) -> None:
        @router.get("/untagged")
        @requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
        async def untagged() -> None:
            """An endpoint of a route without a tag."""

    def unknown(router: APIRouter) -> None:
        @router.get("/unknown", tags=["novelties"])
        @requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
        async def unknown() -> None:
            """An endpoint of a route with a tag that no noun has."""

    with pytest.raises(LookupError, match="/untagged has no tag"):
        declare_scopes(routed(untagged).routes)
    with pytest.raises(LookupError, match="'novelties' has no noun"):
        declare_scopes(routed(unknown).routes)


def test_an_endpoint_of_two_scopes_cannot_be_served() -> None:
    router = APIRouter(tags=["usage"])

    @router.get("/both")
    @router.post("/both")
    @requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
    async def both() -> None:
        """An endpoint that is read and written."""

    with pytest.raises(ValueError, match=r"usage:read and usage:write|usage:write and usage:read"):
        declare_scopes(router.routes)


def test_a_read_needs_no_more_than_reading_and_writing_includes_it(admin: Caller) -> None:
    tenant = new_tenant(admin)
    reading = scoped_key(admin, tenant.tenant_id, ["ssh-keys:read"])
    writing = scoped_key(admin, tenant.tenant_id, ["ssh-keys:write"])
    key = {
        "name": "mine",
        "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0h7H4S3bUXVYRpQSwQ4hVRZ2dGdFyL0u5V9TnvN7oq",
    }
    document = problem(reading.call("POST", "/ssh-keys", key), 403, "scope_required")
    assert document["scopes_required"] == ["ssh-keys:write"]
    assert "ssh-keys:write" in document["detail"]
    assert writing.get("/ssh-keys")["items"] == reading.get("/ssh-keys")["items"] == []
    problem(writing.call("GET", "/allocations"), 403, "scope_required")
    assert reading.get("/me")["scopes"] == ["ssh-keys:read"]
    assert tenant.get("/me")["scopes"] is None
    listed = {found["id"]: found["scopes"] for found in tenant.get("/api-keys")["items"]}
    assert listed[reading.get("/me")["principal_id"]] == ["ssh-keys:read"]


def test_a_reservation_that_starts_an_allocation_needs_the_scope_of_creates(admin: Caller) -> None:
    tenant = new_tenant(admin)
    holder = scoped_key(admin, tenant.tenant_id, ["reservations:write"])
    both = scoped_key(admin, tenant.tenant_id, ["reservations:write", "allocations:write"])
    held = {
        "sku": fresh("sku"),
        "gpus": 1,
        "region": "nowhere",
        "holder_id": "holder",
        "starts_at": "2030-01-01T00:00:00Z",
    }
    body = {
        **held,
        "allocation": {"ssh_key_ids": ["0197f3a0-0000-7000-8000-000000000001"]},
        "ends_at": "2030-01-02T00:00:00Z",
    }
    document = problem(holder.call("POST", "/reservations", body), 403, "scope_required")
    assert document["scopes_required"] == ["allocations:write"]
    problem(both.call("POST", "/reservations", body), 422, "ssh_key_not_found")
    del body["allocation"]
    problem(holder.call("POST", "/reservations", body), 409, "sku_unavailable")


def test_a_role_bounds_a_key_with_scopes(admin: Caller) -> None:
    viewer = scoped_key(admin, new_tenant(admin).tenant_id, ["ssh-keys:write"], "viewer")
    problem(viewer.call("POST", "/ssh-keys", {}), 403, "role_required")
    assert viewer.get("/ssh-keys")["items"] == []


@pytest.mark.parametrize(
    "scopes",
    [
        [],
        ["allocations"],
        ["allocations:delete"],
        ["nothing:read"],
        ["account:read"],
        ["allocations:read"] * 65,
        "allocations:read",
    ],
)
def test_a_key_has_known_scopes(admin: Caller, scopes: object) -> None:
    tenant = new_tenant(admin)
    body = {"name": "x", "role": "member", "scopes": scopes}
    assert refusal(tenant.call("POST", "/api-keys", body)) == (422, "invalid")
    assert refusal(admin.call("POST", "/admin/api-keys", {**body, "role": "fleet"})) == (422, "invalid")
    assert len(tenant.get("/api-keys")["items"]) == 1


def test_a_scope_named_twice_is_one(admin: Caller) -> None:
    made = new_tenant(admin).make(
        "/api-keys", {"name": "x", "role": "member", "scopes": ["usage:read", "log:read", "usage:read"]}
    )
    assert made["scopes"] == ["log:read", "usage:read"]


def test_no_key_makes_one_with_wider_scopes(admin: Caller) -> None:
    tenant = new_tenant(admin)
    maker = scoped_key(admin, tenant.tenant_id, ["api-keys:write", "allocations:write"])
    made = maker.make("/api-keys", {"name": "x", "role": "member", "scopes": ["allocations:read"]})
    assert made["scopes"] == ["allocations:read"]
    before = len(tenant.get("/api-keys")["items"])
    for scopes in (None, ["usage:read"], ["allocations:read", "usage:read"]):
        body = {"name": "y", "role": "member"} | ({} if scopes is None else {"scopes": scopes})
        document = problem(maker.call("POST", "/api-keys", body), 403, "scopes_exceeded")
        assert document["scopes_held"] == ["allocations:write", "api-keys:write"]
    assert len(tenant.get("/api-keys")["items"]) == before

    operator = scoped_key(admin, None, ["admin-api-keys:write"])
    tenants = {"name": "y", "role": "member", "tenant_id": tenant.tenant_id, "scopes": ["allocations:read"]}
    problem(operator.call("POST", "/admin/api-keys", tenants), 403, "scopes_exceeded")
    problem(operator.call("POST", "/admin/api-keys", {"name": "y", "role": "admin"}), 403, "scopes_exceeded")
    operator.make("/admin/api-keys", {"name": "y", "role": "admin", "scopes": ["admin-api-keys:read"]})


def test_a_rotation_keeps_the_scopes_and_no_key_rotates_a_wider_one(admin: Caller) -> None:
    tenant = new_tenant(admin)
    rotator = scoped_key(admin, tenant.tenant_id, ["api-keys:write", "usage:read"])
    narrow = tenant.make("/api-keys", {"name": "n", "role": "viewer", "scopes": ["usage:read"]})
    wider = tenant.make("/api-keys", {"name": "w", "role": "viewer", "scopes": ["usage:write"]})
    whole = tenant.get("/me")["principal_id"]
    rotated = rotator.make(f"/api-keys/{narrow['id']}/rotate", {})
    assert rotated["scopes"] == ["usage:read"]
    successor = Caller(admin.http, rotated["key"], tenant.tenant_id)
    assert successor.get("/me")["scopes"] == ["usage:read"]
    for key_id in (wider["id"], whole):
        problem(rotator.call("POST", f"/api-keys/{key_id}/rotate", {}), 403, "scopes_exceeded")
    listed = {found["id"]: found["replaced_by"] for found in tenant.get("/api-keys")["items"]}
    assert listed[wider["id"]] is None
    assert listed[whole] is None
    operator = scoped_key(admin, None, ["admin-api-keys:write"])
    problem(operator.call("POST", f"/admin/api-keys/{whole}/rotate", {}), 403, "scopes_exceeded")
    own = operator.get("/me")["principal_id"]
    assert operator.make(f"/admin/api-keys/{own}/rotate", {})["scopes"] == ["admin-api-keys:write"]


def test_an_admin_key_with_scopes_is_not_the_last_one(admin: Caller) -> None:
    tenant = new_tenant(admin)
    scoped = scoped_key(admin, tenant.tenant_id, ["api-keys:write"])
    first = tenant.get("/me")["principal_id"]
    problem(scoped.call("DELETE", f"/api-keys/{first}"), 409, "last_admin_key")
    own = scoped.get("/me")["principal_id"]
    assert tenant.call("DELETE", f"/api-keys/{own}").status_code == 204


def test_a_refusal_for_scope_is_audited_as_others_are(api: PublicApi, admin: Caller) -> None:
    tenant = new_tenant(admin)
    reading = scoped_key(admin, tenant.tenant_id, ["ssh-keys:read"])
    viewer = Caller(admin.http, tenant.make("/api-keys", {"name": "v", "role": "viewer"})["key"], tenant.tenant_id)
    after = newest(api)
    problem(reading.call("POST", "/ssh-keys", {}), 403, "scope_required")
    problem(viewer.call("POST", "/ssh-keys", {}), 403, "role_required")
    first, second = rows_after(api, after)
    assert (first.code, second.code) == ("scope_required", "role_required")
    assert (first.action, first.subject, first.status) == (second.action, second.subject, second.status)
    assert (first.principal, first.tenant_id) == (reading.get("/me")["principal_id"], tenant.tenant_id)


def test_a_named_subscription_needs_the_scope_of_a_write(admin: Caller) -> None:
    reading = scoped_key(admin, new_tenant(admin).tenant_id, ["log:read"])
    assert isinstance(admin.http, TestClient)
    headers = {"authorization": f"Bearer {reading.key}"}
    with (
        pytest.raises(WebSocketDenialResponse) as denied,
        admin.http.websocket_connect("/api/v1/notifications?subscription=mine", headers=headers),
    ):
        raise AssertionError("a key that reads created a subscription")
    assert refusal(denied.value) == (403, "scope_required")


def test_scopes_of_the_database_have_their_form(api: PublicApi, admin: Caller) -> None:
    key_id = new_tenant(admin).get("/me")["principal_id"]
    for scopes in ("{}", "{NULL}", "{all}", "{a:read,b}", '{"a:read b:write "}'):
        with pytest.raises(Exception, match="api_key_scopes_are_known"):
            api.database.execute("update api_keys set scopes = %s where id = %s", (scopes, key_id))


def test_reading_does_not_cover_writing() -> None:
    assert covers(None, "log:write")
    assert covers(["log:write"], "log:read")
    assert not covers(["log:read"], "log:write")
    assert not covers(["usage:write"], "log:read")
    assert Scope(Noun.LOG, Access.READ).sufficient == ["log:read", "log:write"]
