"""A secret in a stored response is returned to the caller that received it first, on every route, and to no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from berth.local.servers import LocalPostgres
from orchestrator.operations.sealing import SEALED_MEMBERS
from tests.api.calling import Caller, fresh, insert_admin_key, new_node, new_region, new_tenant, problem
from tests.api.documents import node_document, public_document
from tests.api.processes import public_process
from tests.databases import copied_database

DOCUMENT = public_document()
HOOK = {"url": "https://hooks.example.com/x"}


def members_of(schema: dict[str, Any]) -> set[str]:
    """The members of a response, of each of its variants."""
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    variants = [members_of(one) for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ()))]
    return set(schema.get("properties", ())).union(*variants)


SECRETS = {
    f"{method.upper()} {path}": found.pop()
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if method in ("post", "put", "patch", "delete")
    for status, response in operation["responses"].items()
    if status.startswith("2") and "content" in response
    if (found := members_of(response["content"]["application/json"]["schema"]) & set(SEALED_MEMBERS))
}
"""Every write whose response holds a secret, with its member, generated from the OpenAPI document."""

OF_TENANTS_ALONE = frozenset(
    {"POST /api/v1/invitations", "POST /api/v1/api-keys", "POST /api/v1/api-keys/{key_id}/rotate"}
)
"""Writes that operators may not send."""

SECRET_NAME = re.compile(r"key|token|secret|passw|credential|private|seal|pem|user_data|medium")
PUBLIC_NAMES = frozenset(
    {
        "host_key", "ssh_key_ids", "public_key", "public_keys", "verifying_keys", "key_id", "keyid", "operation_key",
        "console_host_key", "ca_pem", "certificate_pem", "key_set", "key_set_serial", "key_set_refusal",
        "credential", "encrypted_secret",  # only the TPM that they are made for can open them
        "sealed", "sealing_key", "recovery_key",  # a BMC's password for one agent or the site alone; public keys
        "sealing_key_fingerprint", "recovery_key_fingerprint",
    }
)  # fmt: skip
"""Members whose names suggest a secret, and that are none."""
PUBLIC_KEYS = frozenset({"GET /v1/kv", "GET /v1/kv/{key}", "GET /api/v1/operations/{key}"})
"""Responses whose `key` names an entry of the store or an operation."""


def names_in(document: dict[str, Any], schema: Any, seen: frozenset[str] = frozenset()) -> set[str]:
    """The names of all members of a response, at every depth and in every variant."""
    if not isinstance(schema, dict):
        return set()
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return set() if name in seen else names_in(document, document["components"]["schemas"][name], seen | {name})
    inner = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    inner += [one for word in ("anyOf", "oneOf", "allOf") for one in schema.get(word, ())]
    return set(schema.get("properties", ())).union(*(names_in(document, one, seen) for one in inner))


def suspicious_members(document: dict[str, Any]) -> dict[str, set[str]]:
    """By route: the members of its successful responses whose names suggest a secret, without those known as public."""
    found: dict[str, set[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            route = f"{method.upper()} {path}"
            schemas = [
                content.get("schema")
                for status, response in operation["responses"].items()
                if status.startswith("2")
                for content in response.get("content", {}).values()
            ]
            names = set().union(*(names_in(document, schema) for schema in schemas)) - PUBLIC_NAMES
            names = {one for one in names if SECRET_NAME.search(one)} - ({"key"} if route in PUBLIC_KEYS else set())
            if names:
                found[route] = names
    return found


def test_no_response_of_any_route_has_another_member_that_looks_like_a_secret() -> None:
    assert suspicious_members(node_document()) == {}
    assert suspicious_members(public_document()) == {route: {member} for route, member in SECRETS.items()}


@pytest.fixture(scope="module")
def admin(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Caller]:
    directory = tmp_path_factory.mktemp("api")
    deploying = {
        "BERTH_PUBLIC_API_URL": "https://api.example.com",
        "BERTH_PUBLIC_CA_FILE": str(directory / "node-ca.pem"),
    }
    with (
        copied_database(postgres_server, migrated_template) as url,
        public_process(url, directory, deploying) as http,
    ):
        yield Caller(http, insert_admin_key(url))


def request_of(write: str, caller: Caller, admin: Caller) -> tuple[str, dict[str, Any]]:
    """Path and body of a new object for this write; a write without them here fails the test."""
    match write:
        case "POST /api/v1/admin/api-keys":
            return "/admin/api-keys", {"name": fresh("key"), "role": "tenant", "tenant_id": new_tenant(admin).tenant_id}
        case "POST /api/v1/admin/api-keys/{key_id}/rotate":
            made = admin.make("/admin/api-keys", {"name": fresh("key"), "role": "viewer"})
            return f"/admin/api-keys/{made['id']}/rotate", {"overlap_seconds": 60}
        case "POST /api/v1/api-keys":
            return "/api-keys", {"name": fresh("key"), "role": "member"}
        case "POST /api/v1/invitations":
            return "/invitations", {"role": "viewer"}
        case "POST /api/v1/api-keys/{key_id}/rotate":
            made = caller.make("/api-keys", {"name": fresh("key"), "role": "member"})
            return f"/api-keys/{made['id']}/rotate", {"overlap_seconds": 0}
        case "POST /api/v1/admin/nodes/{node_id}/enrolment-token":
            return f"/admin/nodes/{new_node(admin, new_region(admin))['id']}/enrolment-token", {}
        case "POST /api/v1/admin/sites/{site_id}/agents":
            site = admin.make("/admin/sites", {"name": fresh("site"), "recovery_key": "5a" * 32})
            return f"/admin/sites/{site['id']}/agents", {"name": "first"}
        case "POST /api/v1/admin/nodes/{node_id}/deploy-system":
            node = new_node(admin, new_region(admin), shape="baremetal")
            network = {"mac": "02:00:00:00:00:01", "address": "192.0.2.7/24"}
            body = {"network": network, "smbios_uuid": "4c4c4544-0044-4810-8031-b4c04f4d3732"}
            return f"/admin/nodes/{node['id']}/deploy-system", body
        case "POST /api/v1/webhooks":
            return "/webhooks", HOOK
        case "POST /api/v1/webhooks/{webhook_id}/rotate":
            return f"/webhooks/{caller.make('/webhooks', HOOK)['id']}/rotate", {"overlap_seconds": 60}
    raise AssertionError(f"a new write returns a secret: {write}")


@pytest.mark.parametrize("write", SECRETS)
def test_its_owner_gets_it_on_every_route(admin: Caller, write: str) -> None:
    owner = new_tenant(admin) if write in OF_TENANTS_ALONE else admin
    path, body = request_of(write, owner, admin)
    key, member = fresh("secret"), SECRETS[write]
    first = owner.call("POST", path, body, key=key)
    again = owner.call("POST", path, body, key=key)
    asked = owner.call("GET", f"/operations/{key}")
    assert first.status_code in (200, 201), first.text
    assert len(first.json()[member]) > 20
    assert again.json() == asked.json()["result"] == first.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert {one.headers["cache-control"] for one in (first, again, asked)} == {"no-store"}


@pytest.mark.parametrize("write", [one for one in SECRETS if one not in OF_TENANTS_ALONE])
def test_another_operator_does_not_get_it(admin: Caller, write: str) -> None:
    path, body = request_of(write, admin, admin)
    key, member = fresh("secret"), SECRETS[write]
    secret = admin.call("POST", path, body, key=key).json()[member]
    rival = Caller(admin.http, admin.make("/admin/api-keys", {"name": "rival", "role": "admin"})["key"])
    asked = rival.call("GET", f"/operations/{key}")
    assert secret not in asked.text
    assert asked.json()["state"] == "unknown", "the rival's key, not the operation of the other"
    assert admin.call("GET", f"/operations/{key}").json()["result"][member] == secret


@pytest.mark.parametrize("write", [one for one in SECRETS if "/admin/" not in one])
def test_another_key_of_the_same_tenant_does_not_get_it(admin: Caller, write: str) -> None:
    tenant = new_tenant(admin)
    made = admin.make("/admin/api-keys", {"name": "second", "role": "tenant", "tenant_id": tenant.tenant_id})
    colleague = Caller(admin.http, made["key"], tenant.tenant_id)
    path, body = request_of(write, tenant, admin)
    key, member = fresh("secret"), SECRETS[write]
    first = tenant.call("POST", path, body, key=key).json()
    again = problem(colleague.call("POST", path, body, key=key), 409, "secret_not_shown_again")
    asked = colleague.call("GET", f"/operations/{key}").json()
    assert first[member] not in str(again) + str(asked)
    assert asked["state"] == "committed"
    without = {name: value for name, value in first.items() if name != member}
    assert again["answer"] == asked["result"] == without
