"""Every path of the OpenAPI document answers existing ids of another tenant as it answers ids that never existed.

The application connects as the owner of the tables here: the policies (migrations/policies.sql) would hide a statement that has
lost its filter. What the policies do alone is in tests/security/attacks/test_removed_filters.py.

The requests are generated from the document. A path, query or body member that is new must be listed here: under `KINDS` if
it names an object, under `PLAIN` if not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.api.calling import Caller, fresh, new_tenant, ssh_key
from tests.api.documents import public_document
from tests.support.foreign import NEVER, Owned, bearer, own_everything, stable
from tests.support.public_api import PublicApi, api_without_policies

__all__ = ["api_without_policies"]

KINDS = {
    "allocation_id": "allocation_id", "approval_id": "approval_id", "dead_letter_id": "dead_letter_id",
    "holder_id": "holder_id", "node": "node_id",
    "node_id": "node_id", "number": "number", "orphan_id": "orphan_id", "policy_id": "policy_id",
    "report_id": "report_id", "repair_id": "repair_id", "serial": "serial",
    "request_id": "request_id", "reservation_id": "reservation_id", "ssh_key_ids": "ssh_key_id", "tenant_id": "tenant_id",
    "invitation_id": "invitation_id", "member_id": "member_id", "webhook_id": "webhook_id",
    "window_id": "window_id", "begin": "kv_path", "end": "kv_path",
}  # fmt: skip
"""Which kind of object a parameter or member of this name identifies, wherever it occurs."""
KINDS_AT = {
    ("/api/v1/ssh-keys/{key_id}", "key_id"): "ssh_key_id",
    ("/api/v1/api-keys/{key_id}", "key_id"): "api_key_id",
    ("/api/v1/api-keys/{key_id}/rotate", "key_id"): "api_key_id",
    ("/api/v1/admin/api-keys/{key_id}", "key_id"): "api_key_id",
    ("/api/v1/admin/api-keys/{key_id}/rotate", "key_id"): "api_key_id",
    ("/api/v1/operations/{key}", "key"): "operation_key",
    ("/v1/kv/{key}", "key"): "kv_path",
    ("/v1/commit", "key"): "kv_key",
    ("/v1/commit", "begin"): "kv_key",
    ("/v1/commit", "end"): "kv_key",
    ("/api/v1/notifications/subscriptions/{name}", "name"): "subscription",
}
"""The same for names that mean different objects at different paths."""
PLAIN = frozenset(
    {
        # Of the audit.
        "principal", "subject", "action", "outcome", "until", "after",
        # Of the request itself, or values.
        "cursor", "limit", "min_version", "leader_id", "wait_seconds", "since", "state", "label", "by", "from", "to", "every",
        "starts_at", "ends_at", "ttl_seconds", "name", "labels", "user_data", "public_key", "url", "types", "description",
        "signing", "overlap_seconds", "reason", "read_version", "preconditions", "operations", "type", "version", "value",
        "prevent_truncate", "allocation", "runtime_verified_absent", "gpus_limit", "limits", "prepaid",
        "low_threshold_micro_units", "expires_at", "owner", "break_glass", "scopes", "expires_in_seconds", "verb",
        "amount_micro_units", "reference", "role", "display_name", "hardware_id", "valid_seconds", "token", "csr_pem",
        "allocations", "reservations", "policy", "ek_sha256", "ek_certificate", "forget_tpm", "tpm", "digest",
        "attestation", "attestation_id", "quote", "signature", "ek_public", "ak_public", "ek_certificate_pem",
        # Shared by all tenants.
        "sku", "gpus", "region", "image", "count", "kind", "resources", "resource_id", "consumer", "id", "shape",
        "gpu_model", "allowed_counts", "default_image", "price_micro_per_gpu_second", "sha256", "shapes", "gpu_models",
        "vcpus_per_gpu", "memory_bytes_per_gpu",
        "regions", "slots_from_topology", "deadline", "at_deadline",
        "slot_count", "half_slots", "address", "faults", "slot_index", "evidence", "note", "restart_policy",
        "task", "plugin", "timeout_seconds", "image_url", "targets", "restart",
        "symptom", "details", "replace", "result", "contested", "missing", "slot", "without_burn_in", "pool_id",
        "list_id", "vendor", "product", "components", "component", "model", "versions", "rotates_at_release",
        "site", "site_id", "agent_id", "recovery_key", "certificate_sha256", "username", "system_id", "password", "generation",
        "copies", "recipient", "text", "provisioning_vlan", "first_tenant_vlan", "last_tenant_vlan", "quarantine_seconds",
        "ports", "switch", "port", "console_host_key", "console_shared",
        "network", "mac", "macs", "gateway", "vlan", "mtu", "smbios_uuid", "require_tpm", "certificate_seconds", "power_off",
        "connection", "host", "user", "host_key", "serial", "root_disk", "size_bytes_min",
        "offset", "bytes_max", "statement", "format", "firmware", "login_user", "cloud_init", "readiness", "readiness_port",
        "disk_bytes_min", "size_bytes", "gpu_driver_version", "fabric_manager_version",
    }
)  # fmt: skip
SHARED_PATH_VALUES = {
    "name": "never-a-name",
    "resource_id": "never-a-resource",
    "consumer": "never-a-consumer",
    "slot_index": "0",
    "pool_id": "2147483647",
    "list_id": "0197a5c0-0000-7000-8000-000000000001",
    "site": "never-a-site",
    "site_id": "00000000-0000-7000-8000-000000000001",
    "agent_id": "00000000-0000-7000-8000-000000000001",
}
NOT_SECRET = frozenset({"node_id", "number"})
"""Kinds whose ids an answer to another tenant may contain."""
NOT_CALLED = {
    "GET /v1/subscribe": "endless; test_filtered_streams.py",
    "POST /api/v1/nodes/enroll": "nodes enrol by a token; no tenant calls it",
    "POST /api/v1/nodes/enroll/challenge": "the same",
    "POST /api/v1/invitations/accept": "a user accepts by a token, which names the tenant; test_members.py",
    "POST /api/v1/sites/enroll": "the same, of agents of sites",
    "POST /api/v1/deploy-systems/enroll": "deploy systems enrol by a token; no tenant calls it",
    "POST /api/v1/deploy-systems/enroll/challenge": "the same",
    "GET /api/v1/me": "the caller itself, whichever id is sent; test_browsers_and_heads.py",
    **dict.fromkeys(("GET /asyncapi.json", "GET /ok", "GET /live"), "open"),
}

Of = Callable[[str], str]
"""The id of a kind: one of the other tenant's, or one that never existed."""
GPUS = {"sku": "never-a-sku", "gpus": 1, "region": "never-a-region"}


def _ssh_key_of(caller: Caller) -> str:
    return str(caller.make("/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()})["id"])


def _reservation_of(caller: Caller, shared: Shared) -> str:
    hold = {"sku": shared.sku, "gpus": 1, "region": shared.region, "count": 1, "holder_id": "h"}
    return str(caller.make("/reservations", hold)["reservation_id"])


@dataclass(frozen=True)
class Shared:
    """What both tenants may name: a region and an SKU with room."""

    region: str
    sku: str
    node_id: str


PUBLIC_KEY = ssh_key()
Body = Callable[[Of, Shared, Caller], Any]
NOTHING: Body = lambda of, shared, mine: None  # noqa: E731
BODIES: dict[str, list[Body]] = {
    "POST /api/v1/allocations": [
        lambda of, shared, mine: {"sku": shared.sku, "gpus": 1, "region": shared.region, "ssh_key_ids": [of("ssh_key_id")]},
        lambda of, shared, mine: {
            "sku": shared.sku, "gpus": 1, "region": shared.region, "ssh_key_ids": [_ssh_key_of(mine), of("ssh_key_id")],
        },
        lambda of, shared, mine: {
            "reservation_id": of("reservation_id"), "holder_id": of("holder_id"), "ssh_key_ids": [_ssh_key_of(mine)],
        },
        lambda of, shared, mine: {
            "reservation_id": _reservation_of(mine, shared), "holder_id": "h", "ssh_key_ids": [of("ssh_key_id")],
        },
    ],
    "POST /api/v1/reservations": [
        lambda of, shared, mine: {"resources": [f"slot:{shared.node_id}:7"], "holder_id": of("holder_id")},
        lambda of, shared, mine: {
            "sku": shared.sku, "gpus": 1, "region": shared.region, "count": 1, "holder_id": "h",
            "allocation": {"ssh_key_ids": [of("ssh_key_id")]},
        },
    ],
    "POST /api/v1/reservations/{reservation_id}/confirm": [lambda of, shared, mine: {"holder_id": of("holder_id")}],
    "POST /api/v1/reservations/{reservation_id}/cancel": [lambda of, shared, mine: {"holder_id": of("holder_id")}],
    "POST /api/v1/ssh-keys": [lambda of, shared, mine: {"name": "mine", "public_key": PUBLIC_KEY}],
    "POST /api/v1/api-keys": [lambda of, shared, mine: {"name": "mine", "role": "viewer"}],
    "POST /api/v1/api-keys/{key_id}/rotate": [NOTHING, lambda of, shared, mine: {"overlap_seconds": 0}],
    "POST /api/v1/invitations": [lambda of, shared, mine: {"role": "viewer"}],
    "PATCH /api/v1/members/{member_id}": [lambda of, shared, mine: {"role": "viewer"}],
    "POST /api/v1/webhooks": [lambda of, shared, mine: {"url": "https://hooks.example.com/mine"}],
    "PATCH /api/v1/allocations/{allocation_id}": [lambda of, shared, mine: {"name": "mine", "labels": {"a": "b"}}],
    "PATCH /api/v1/webhooks/{webhook_id}": [lambda of, shared, mine: {"state": "disabled"}],
    "POST /api/v1/webhooks/{webhook_id}/rotate": [lambda of, shared, mine: {"overlap_seconds": 0}],
    "POST /api/v1/webhooks/{webhook_id}/test": [NOTHING],
    "POST /api/v1/webhooks/{webhook_id}/replay": [lambda of, shared, mine: {"since": "2026-01-01T00:00:00Z"}],
    "POST /api/v1/webhooks/{webhook_id}/deliveries/{number}/replay": [NOTHING],
    "POST /api/v1/allocations/{allocation_id}/release": [NOTHING],
    "POST /api/v1/allocations/{allocation_id}/report-fault": [
        lambda of, shared, mine: {"symptom": "slow", "evidence": "e", "details": {"a": "b"}, "replace": True},
    ],
    "POST /api/v1/allocations/{allocation_id}/reboot": [NOTHING],
    "POST /api/v1/allocations/{allocation_id}/stop": [NOTHING],
    "POST /api/v1/allocations/{allocation_id}/start": [NOTHING],
    "POST /api/v1/allocations/{allocation_id}/rebuild": [NOTHING],
    "POST /api/v1/allocations/{allocation_id}/rescue": [NOTHING],
    "PUT /v1/retention/{policy_id}": [lambda of, shared, mine: {"prevent_truncate": 0}],
    "POST /v1/commit": [
        lambda of, shared, mine: {"request_id": of("request_id"), "operations": []},
        lambda of, shared, mine: {"preconditions": [{"type": "point_read", "version": 0, "key": of("kv_key")}]},
        lambda of, shared, mine: {
            "preconditions": [{"type": "range_read", "version": 0, "begin": "", "end": of("kv_key") + "AAAA"}],
        },
        lambda of, shared, mine: {"operations": [{"type": "delete", "key": of("kv_key")}]},
        lambda of, shared, mine: {"operations": [{"type": "range_delete", "begin": "", "end": "////"}]},
        lambda of, shared, mine: {
            "operations": [{"type": "range_delete", "begin": of("kv_key"), "end": of("kv_key") + "AAAA"}],
        },
        lambda of, shared, mine: {"operations": [{"type": "write", "key": of("kv_key"), "value": "bWluZQ=="}]},
    ],
}  # fmt: skip
"""Complete bodies of each operation of tenants, together with every member of its schema that names an object."""


@dataclass(frozen=True)
class Operation:
    """One operation of the document: its parameters by place, and the names of all members of its body."""

    method: str
    path: str
    in_path: tuple[str, ...]
    in_query: tuple[str, ...]
    in_body: frozenset[str]

    @property
    def name(self) -> str:
        """Method and path."""
        return f"{self.method} {self.path}"

    @property
    def is_admin(self) -> bool:
        """Whether it is closed to tenants."""
        return self.path.startswith("/api/v1/admin/")

    def kind_of(self, name: str) -> str | None:
        """Which object a parameter or member identifies; None for plain values. Fails for a name that is not listed."""
        kind = KINDS_AT.get((self.path, name), KINDS.get(name))
        if kind is None and name not in PLAIN:
            pytest.fail(f"{self.name}: {name} is listed neither in KINDS nor in PLAIN")
        return kind


def _members(document: Any, schema: Any) -> Iterator[str]:
    """The names of all members of a schema, at every depth."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for name, member in schema.get("properties", {}).items():
        yield name
        yield from _members(document, member)
    for choices in ("anyOf", "oneOf", "allOf"):
        for choice in schema.get(choices, ()):
            yield from _members(document, choice)
    if isinstance(schema.get("items"), dict):
        yield from _members(document, schema["items"])


def operations_of(document: Any) -> list[Operation]:
    """All that the document lists."""
    found = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parameters = operation.get("parameters", ())
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            names = {
                place: tuple(one["name"] for one in parameters if one["in"] == place) for place in ("path", "query")
            }
            members = frozenset(_members(document, body))
            found.append(Operation(method.upper(), path, names["path"], names["query"], members))
    return found


OPERATIONS = operations_of(public_document())
CALLED = [operation for operation in OPERATIONS if operation.name not in NOT_CALLED]


@dataclass
class Ids:
    """The ids of one request, and which kinds it asked for."""

    values: dict[str, str]

    def __post_init__(self) -> None:
        self.asked: set[str] = set()

    def of(self, kind: str) -> str:
        """The id of this kind."""
        self.asked.add(kind)
        return self.values[kind]


@pytest.fixture(scope="module")
def api(api_without_policies: PublicApi) -> PublicApi:
    """The application with the filters of its statements alone."""
    return api_without_policies


@pytest.fixture(scope="module")
def other(api: PublicApi) -> Owned:
    """The tenant whose objects exist."""
    return own_everything(api.admin, api.database)


@pytest.fixture(scope="module")
def shared(api: PublicApi, other: Owned) -> Shared:
    """Where the other tenant rents."""
    seen = other.tenant.get(f"/allocations/{other.ids['allocation_id']}")
    return Shared(seen["region"], seen["sku"], other.ids["node_id"])


@dataclass
class Seen:
    """What the other tenant last read of its objects; None after a test that failed."""

    state: list[Any] | None = None


@pytest.fixture(scope="module")
def seen() -> Seen:
    """The state after one test, which is the state before the next."""
    return Seen()


@pytest.fixture(scope="module")
def onlookers(api: PublicApi) -> tuple[Caller, Caller]:
    """Two tenants for requests that change nothing: those that only read, and those that are closed to tenants."""
    return new_tenant(api.admin), new_tenant(api.admin)


def answered(
    operation: Operation, mine: Caller, ids: Ids, other: Owned, shared: Shared, body: Body, query_name: str | None,
    with_key: bool,
) -> tuple[int, Any]:  # fmt: skip
    """Status and comparable body of one request. Ids that were sent are replaced by their kind."""
    path = operation.path
    for name in operation.in_path:
        kind = operation.kind_of(name)
        path = path.replace(f"{{{name}}}", SHARED_PATH_VALUES[name] if kind is None else ids.of(kind))
    query = {}
    if operation.path == "/v1/status":
        query = {"request_id": ids.of("request_id"), "min_version": "0"}
    if query_name is not None:
        query[query_name] = ids.of(str(operation.kind_of(query_name)))
    headers = bearer(mine)
    if with_key:
        headers["idempotency-key"] = ids.of("operation_key")
    sent = {} if operation.is_admin and operation.method != "GET" else body(ids.of, shared, mine)
    answer = mine.http.request(operation.method, path, json=sent, headers=headers, params=query)
    text = answer.text
    for kind, value in other.ids.items():
        assert kind in NOT_SECRET or kind in ids.asked or value not in text, f"the answer shows another tenant's {kind}"
    for kind in sorted(ids.asked, key=lambda one: -len(ids.values[one])):
        text = text.replace(ids.values[kind], f"<{kind}>")
    found = stable(json.loads(text.replace(str(mine.tenant_id), "<mine>"))) if text else None
    if isinstance(found, dict) and "request_id" not in ids.asked:
        found.pop("request_id", None)  # generated by the server
    return answer.status_code, found


@pytest.mark.parametrize("operation", CALLED, ids=[operation.name for operation in CALLED])
def test_existing_ids_of_another_tenant_are_answered_as_ids_that_never_existed(
    operation: Operation, api: PublicApi, other: Owned, shared: Shared, onlookers: tuple[Caller, Caller], seen: Seen
) -> None:
    before = seen.state or other.state()
    seen.state = None
    named = [name for name in operation.in_query if operation.kind_of(name) is not None]
    bodies = BODIES.get(operation.name, [NOTHING])
    requests = [(body, None, False) for body in bodies] + [(bodies[0], name, False) for name in named]
    if operation.method != "GET":
        requests.append((bodies[0], None, True))
    if operation.is_admin or operation.method == "GET":
        asker, control = onlookers
    else:
        asker, control = new_tenant(api.admin), new_tenant(api.admin)
    never_ids = {kind: make() for kind, make in NEVER.items()}
    for body, query_name, with_key in requests:
        existing = answered(operation, asker, Ids(dict(other.ids)), other, shared, body, query_name, with_key)
        never = answered(operation, control, Ids(never_ids), other, shared, body, query_name, with_key)
        assert existing == never, f"query {query_name}, idempotency key {with_key}"
        assert existing[0] < 500
        if operation.is_admin:
            assert existing[0] == 403
        else:
            code = existing[1].get("code") if isinstance(existing[1], dict) else None
            assert code not in ("invalid", "malformed"), existing[1]
    after = other.state()
    assert after == before, "the other tenant's objects changed"
    seen.state = after


def test_every_parameter_is_listed_and_every_body_names_every_object_of_its_schema() -> None:
    assert {operation.name for operation in OPERATIONS} >= NOT_CALLED.keys()
    assert {*KINDS.values(), *KINDS_AT.values()} <= NEVER.keys()
    shared = Shared("region", "sku", "node")
    any_id = httpx.MockTransport(lambda request: httpx.Response(201, json={"id": "1", "reservation_id": "2"}))
    for operation in CALLED:
        for name in (*operation.in_path, *operation.in_query, *operation.in_body):
            operation.kind_of(name)
        if not operation.in_body or operation.is_admin:
            continue
        assert operation.name in BODIES, f"{operation.name} has a body and no example of it"
        ids = Ids({kind: make() for kind, make in NEVER.items()})
        for body in BODIES[operation.name]:
            body(ids.of, shared, Caller(httpx.Client(transport=any_id, base_url="http://none"), None))
        wanted = {operation.kind_of(name) for name in operation.in_body} - {None}
        assert wanted <= ids.asked, f"{operation.name}: no body names {wanted - ids.asked}"


def test_a_parameter_that_is_not_listed_fails() -> None:
    for unlisted in (("thing_id", "/api/v1/things/{thing_id}"), ("key", "/api/v1/things/{key}")):
        operation = Operation("GET", unlisted[1], unlisted[:1], (), frozenset())
        with pytest.raises(pytest.fail.Exception):
            operation.kind_of(unlisted[0])


def test_two_tenants_with_the_same_operation_key_each_get_their_own(api: PublicApi) -> None:
    tenants, key = [new_tenant(api.admin) for _ in range(2)], fresh("shared-key")
    made = [one.call("POST", "/ssh-keys", {"name": "k", "public_key": ssh_key()}, key=key).json() for one in tenants]
    for tenant, own in zip(tenants, made, strict=True):
        told = tenant.get(f"/operations/{key}")
        assert (told["state"], told["result"]) == ("committed", own)
