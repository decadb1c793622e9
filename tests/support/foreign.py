"""One object of each kind that a tenant can own, and ids of the same shape that never existed."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.api.calling import Caller, fresh, new_place, new_tenant, one_gpu
from tests.keyvalue.committing import Keys, b64, b64url, put

HOLDER = "holder-of-the-other-tenant"
WEBHOOK_URL = "https://hooks.example.com/berth"


def _uuid() -> str:
    return str(uuid.uuid4())


def _name() -> str:
    return f"never-{secrets.token_hex(10)}"


@dataclass(frozen=True)
class Owned:
    """The objects of one tenant. `ids` has the id of each kind; `views` are the paths at which the tenant reads them."""

    tenant: Caller
    ids: Mapping[str, str]
    views: tuple[str, ...]

    def state(self) -> list[Any]:
        """What the tenant reads of its objects, without the times of the responses."""
        answers = [self.tenant.http.get(path, headers=bearer(self.tenant)) for path in self.views]
        return [(answer.status_code, stable(answer.json())) for answer in answers]


NEVER: Mapping[str, Callable[[], str]] = {
    "allocation_id": _uuid, "api_key_id": _uuid, "approval_id": _uuid, "dead_letter_id": _uuid, "holder_id": _name,
    "kv_key": lambda: b64(secrets.token_bytes(12)), "kv_path": lambda: b64url(secrets.token_bytes(12)), "node_id": _uuid,
    "number": lambda: str(10**9 + secrets.randbelow(10**6)), "operation_key": _name, "orphan_id": _uuid,
    "policy_id": _name, "repair_id": _uuid, "report_id": _uuid, "request_id": lambda: f"request-{secrets.token_hex(12)}",
    "reservation_id": _uuid, "serial": _name,
    "ssh_key_id": _uuid, "subscription": _name, "tenant_id": _uuid,
    "invitation_id": _uuid, "member_id": _uuid, "webhook_id": _uuid, "window_id": _uuid,
}  # fmt: skip
"""Per kind, an id that never existed."""

VOLATILE = frozenset(
    {
        "at", "created_at", "existing_id", "id", "last_used_at", "prefix", "read_version", "secret", "server_time", "updated_at",
        "version",
    }
)  # fmt: skip
"""Members of answers that differ between two equal requests."""


def bearer(caller: Caller) -> dict[str, str]:
    """The caller's authorization header."""
    return {"authorization": f"Bearer {caller.key}"}


def stable(body: Any) -> Any:
    """The body without members that differ between two equal requests."""
    if isinstance(body, dict):
        new_key = str(body.get("key", "")).startswith("berth_")
        new_invitation = str(body.get("token", "")).startswith("berth_inv_")
        return {
            name: stable(member)
            for name, member in body.items()
            if name not in VOLATILE
            and not (new_key and name == "key")
            and not (new_invitation and name in ("token", "created_by", "expires_at"))
        }
    if isinstance(body, list):
        return [stable(member) for member in body]
    return body


def _report_fault(database: psycopg.Connection[Any], *of: str | None) -> str:
    found = database.execute(
        "insert into fault_reports (tenant_id, allocation_id, node_id, slots, symptom, evidence, replace, reported_by)"
        " values (%s, %s, %s, '{1}', 'slow', 'e', false, 'tenant:a') returning id",
        of,
    ).fetchone()
    assert found is not None
    return str(found[0])


def _member_of(database: psycopg.Connection[Any], tenant_id: str | None) -> str:
    """A new member of the tenant."""
    member_id = _uuid()
    database.execute(
        "insert into tenant_members (id, tenant_id, subject, role, invited_by) values (%s, %s, 'subject', 'viewer', 'x')",
        (member_id, tenant_id),
    )
    return member_id


def own_everything(admin: Caller, database: psycopg.Connection[Any]) -> Owned:
    """A new tenant with one object of each kind."""
    tenant = new_tenant(admin)
    place = new_place(admin, database)
    create = one_gpu(tenant, place)
    ids = {"tenant_id": tenant.tenant_id or "", "holder_id": HOLDER, "operation_key": fresh("create-of-the-other")}
    made = tenant.call("POST", "/allocations", create, key=ids["operation_key"])
    assert made.status_code == 201, made.text
    hold = {"resources": [f"slot:{place.node['id']}:7"], "holder_id": HOLDER}
    policy, subscription, key = fresh("policy"), fresh("subscription"), b"key-of-another."
    keys = Keys(tenant)
    request_id = f"{fresh('request')}-{secrets.token_hex(10)}"
    keys.committed([put(key, b"value")], request_id=request_id)
    head = keys.version()
    assert keys.send("PUT", f"/retention/{policy}", {"prevent_truncate": head}).status_code in (200, 201)
    database.execute(
        "insert into notification_subscriptions (scope, name, version, versions_max, kept_until)"
        " values (%s, %s, %s, 1000, clock_timestamp() + interval '1 h')",
        (tenant.tenant_id, subscription, head),
    )
    webhook = tenant.make("/webhooks", {"url": WEBHOOK_URL})["id"]
    ids |= {
        "allocation_id": made.json()["allocation_id"], "ssh_key_id": create["ssh_key_ids"][0], "webhook_id": webhook,
        "number": str(tenant.make(f"/webhooks/{webhook}/test")["number"]), "subscription": subscription,
        "reservation_id": tenant.make("/reservations", hold)["reservation_id"], "request_id": request_id,
        "kv_key": b64(key), "kv_path": b64url(key), "policy_id": policy, "node_id": place.node["id"],
        "api_key_id": admin.get("/admin/api-keys", tenant_id=tenant.tenant_id)["items"][0]["id"],
        "invitation_id": tenant.make("/invitations", {"role": "viewer"})["id"],
        "member_id": _member_of(database, tenant.tenant_id),
        # Operators' objects: a tenant is refused before they are read.
        "orphan_id": _uuid(), "dead_letter_id": _uuid(), "approval_id": _uuid(), "window_id": _uuid(),
        "report_id": _report_fault(database, tenant.tenant_id, made.json()["allocation_id"], place.node["id"]),
        "repair_id": _uuid(), "serial": _name(),
    }  # fmt: skip
    database.execute(
        "update allocations set active_at = clock_timestamp() - interval '2 min',"
        " releasing_at = clock_timestamp() - interval '1 min' where id = %s",
        (ids["allocation_id"],),
    )  # for a usage line
    keys.version()  # sequences the events of all of these, which their objects then show
    views = [
        "/api/v1/allocations", f"/api/v1/allocations/{ids['allocation_id']}", "/api/v1/reservations", "/api/v1/ssh-keys",
        "/api/v1/api-keys", "/api/v1/members", "/api/v1/invitations", "/api/v1/webhooks",
        f"/api/v1/webhooks/{webhook}/deliveries", "/api/v1/usage?by=allocation",
        "/api/v1/notifications/subscriptions", "/api/v1/fault-reports",
        f"/api/v1/operations/{ids['operation_key']}", "/v1/kv", "/v1/retention",
    ]  # fmt: skip
    return Owned(tenant, ids, tuple(views))
