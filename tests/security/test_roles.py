"""Every route with every role: the response is 403 exactly where the reference page says so."""

from __future__ import annotations

import runpy
import socket
import uuid
from collections.abc import Iterator

import pytest
from fastapi import APIRouter
from fastapi.routing import iter_route_contexts
from starlette.testclient import TestClient, WebSocketDenialResponse

from berth.local.servers import LocalPostgres
from orchestrator.edge.routes import PUBLIC_ROUTES, require_declared_roles
from tests.api.calling import Caller, fresh, insert_admin_key, new_tenant, problem, refusal
from tests.api.processes import public_process
from tests.api.role_matrix import COLUMNS, differences, matrix
from tests.databases import copied_database
from tests.deploy.deployment import DEPLOY, ROOT
from tests.support.public_api import PublicApi, admin, api
from tests.support.waiting import WAIT_SECONDS_MAX

__all__ = ["admin", "api"]


def key_of(admin: Caller, tenant_id: str | None, role: str) -> Caller:
    """A new key with this role, of a tenant or of operators."""
    body = {"name": role, "role": role, **({} if tenant_id is None else {"tenant_id": tenant_id})}
    return Caller(admin.http, admin.make("/admin/api-keys", body)["key"], tenant_id)


@pytest.mark.parametrize(("kind", "role"), COLUMNS)
def test_every_route_with_this_role_is_as_the_matrix_says(admin: Caller, kind: str, role: str) -> None:
    caller = key_of(admin, new_tenant(admin).tenant_id if kind == "tenant" else None, role)
    assert differences(caller, kind, role) == []


def test_the_page_is_generated_and_has_every_route() -> None:
    generator = runpy.run_path(str(DEPLOY / "role_reference.py"))
    assert (ROOT / "docs" / "reference" / "access" / "roles.md").read_text() == generator["page"](), (
        "run `make references`"
    )
    rows = {(method, path) for method, path, _ in matrix()}
    routed = {
        (method, route.path) for route in iter_route_contexts(PUBLIC_ROUTES) for method in route.methods or {"WS"}
    }
    open_routes = {
        ("GET", "/api/v1/allocations/{allocation_id}/console/attach"),
        ("GET", "/api/v1/notifications"), ("POST", "/api/v1/nodes/enroll"), ("GET", "/asyncapi.json"), ("GET", "/ok"),
        ("GET", "/live"),
        ("POST", "/api/v1/nodes/enroll/challenge"), ("POST", "/api/v1/sites/enroll"),
        ("POST", "/api/v1/deploy-systems/enroll"), ("POST", "/api/v1/deploy-systems/enroll/challenge"),
        ("POST", "/api/v1/invitations/accept"),
    }  # fmt: skip
    assert routed - rows == open_routes


def test_a_route_without_declared_roles_cannot_be_served() -> None:
    router = APIRouter()

    @router.get("/new")
    async def new() -> None:
        """An endpoint with no declaration."""

    with pytest.raises(LookupError, match="/new declares no roles"):
        require_declared_roles(router.routes)


def test_the_refusal_names_the_roles_that_may(admin: Caller) -> None:
    viewer = key_of(admin, new_tenant(admin).tenant_id, "viewer")
    document = problem(viewer.call("POST", "/allocations", {}), 403, "role_required")
    assert (document["role"], document["roles_required"]) == ("viewer", ["admin", "member"])
    assert viewer.get("/me")["role"] == "viewer"
    support = key_of(admin, None, "support")
    assert support.get("/me")["role"] == "support"
    document = problem(support.call("POST", "/admin/tenants", {"name": "x"}), 403, "role_required")
    assert document["roles_required"] == ["admin"]


def test_a_role_fits_the_kind_of_its_key(admin: Caller) -> None:
    tenant_id = new_tenant(admin).tenant_id
    for role in ("support", "fleet", "finance", "root"):
        body = {"name": "x", "role": role, "tenant_id": tenant_id}
        assert refusal(admin.call("POST", "/admin/api-keys", body)) == (422, "invalid")
    for role in ("member", "billing", "tenant"):
        assert refusal(admin.call("POST", "/admin/api-keys", {"name": "x", "role": role})) == (422, "invalid")
    made = admin.make("/admin/api-keys", {"name": fresh("k"), "role": "tenant", "tenant_id": tenant_id})
    assert made["role"] == "admin"


def test_keys_that_existed_before_roles_have_the_role_admin(api: PublicApi, admin: Caller) -> None:
    assert admin.get("/me")["role"] == "admin", "inserted by a statement that names no role, as earlier code does"
    row = api.database.execute("select distinct access_role from api_keys where name = 'first'").fetchall()
    assert row == [("admin",)]


def test_a_named_subscription_needs_a_role_that_writes(admin: Caller) -> None:
    viewer = key_of(admin, new_tenant(admin).tenant_id, "viewer")
    assert isinstance(admin.http, TestClient)
    headers = {"authorization": f"Bearer {viewer.key}"}
    with (
        pytest.raises(WebSocketDenialResponse) as denied,
        admin.http.websocket_connect("/api/v1/notifications?subscription=mine", headers=headers),
    ):
        raise AssertionError("a viewer created a subscription")
    assert refusal(denied.value) == (403, "role_required")


@pytest.fixture(scope="module")
def process(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Caller]:
    """An operator of an API that runs in another process, so that a body can be held back."""
    with (
        copied_database(postgres_server, migrated_template) as url,
        public_process(url, tmp_path_factory.mktemp("api")) as http,
    ):
        yield Caller(http, insert_admin_key(url))


@pytest.mark.parametrize(
    "what",
    [
        "POST /api/v1/allocations", "POST /api/v1/reservations", "POST /v1/commit", "POST /api/v1/webhooks",
        f"POST /api/v1/reservations/{uuid.UUID(int=7)}/confirm", "PATCH /api/v1/allocations/0",
    ],
)  # fmt: skip
def test_a_role_is_checked_before_the_body_arrives(process: Caller, what: str) -> None:
    viewer = key_of(process, new_tenant(process).tenant_id, "viewer")
    url = process.http.base_url
    with socket.create_connection((url.host, url.port or 0), timeout=WAIT_SECONDS_MAX) as connection:
        connection.sendall(
            f"{what} HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {viewer.key}\r\ncontent-type: application/json\r\n"
            "content-length: 200000\r\n\r\n{".encode()
        )
        received = b""
        while chunk := connection.recv(65_536):
            received += chunk
    assert received.startswith(b"HTTP/1.1 403 ")
    assert b'"role_required"' in received
