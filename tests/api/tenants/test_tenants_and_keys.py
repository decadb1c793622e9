"""Tenants, quotas and API keys: what operators do with them, and what a revoked key or a suspended tenant can still do."""

from __future__ import annotations

import hashlib
import uuid

from tests.api.calling import Caller, at_once, fresh, new_tenant, problem, refusal
from tests.support.public_api import PublicApi


def test_a_tenant_is_made_changed_and_found(admin: Caller) -> None:
    name = fresh("tenant")
    made = admin.make("/admin/tenants", {"name": name, "gpus_limit": 8})
    assert (made["name"], made["state"], made["gpus_limit"], made["gpus_used"]) == (name, "active", 8, 0)
    assert admin.get(f"/admin/tenants/{made['id']}") == made

    limited = admin.put(f"/admin/tenants/{made['id']}/quota", {"gpus_limit": 0})
    assert limited["gpus_limit"] == 0
    assert admin.put(f"/admin/tenants/{made['id']}/quota", {"gpus_limit": 4.0})["gpus_limit"] == 4
    unlimited = admin.put(f"/admin/tenants/{made['id']}/quota", {"gpus_limit": None})
    assert unlimited["gpus_limit"] is None
    assert made["row_version"] < limited["row_version"] < unlimited["row_version"]
    assert made["id"] in [tenant["id"] for tenant in admin.every("/admin/tenants", 500)]


def test_of_simultaneous_creates_of_one_name_exactly_one_succeeds(admin: Caller) -> None:
    name = fresh("contested")
    answers = at_once(*[lambda: admin.call("POST", "/admin/tenants", {"name": name})] * 8)
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 7
    (made,) = [answer.json()["id"] for answer in answers if answer.status_code == 201]
    for answer in answers:
        if answer.status_code == 409:
            assert problem(answer, 409, "already_exists")["existing_id"] == made
    assert len([t for t in admin.every("/admin/tenants", 500) if t["name"] == name]) == 1


def test_a_suspended_tenant_is_refused_at_once_and_let_in_again(admin: Caller) -> None:
    tenant = new_tenant(admin)
    tenant.get("/skus")
    assert (
        admin.call("PATCH", f"/admin/tenants/{tenant.tenant_id}", {"state": "suspended"}).json()["state"] == "suspended"
    )
    problem(tenant.call("GET", "/skus"), 401, "unauthenticated")
    admin.call("PATCH", f"/admin/tenants/{tenant.tenant_id}", {"state": "active"})
    tenant.get("/skus")


def test_a_key_is_returned_once_and_stored_hashed(api: PublicApi, admin: Caller) -> None:
    body = {"name": "robot", "role": "admin"}
    made = admin.make("/admin/api-keys", body)
    assert made["key"].startswith(f"berth_{made['prefix']}_")
    Caller(admin.http, made["key"]).get("/admin/tenants", limit=1)

    (listed,) = [key for key in admin.every("/admin/api-keys", 500) if key["id"] == made["id"]]
    assert "key" not in listed
    assert listed["revoked_at"] is None
    row = api.database.execute("select secret_hash from api_keys where id = %s", (made["id"],)).fetchone()
    assert row is not None
    assert row[0] == hashlib.sha256(made["key"].encode()).digest()
    for table in ("operations", "audit", "outbox"):
        found = api.database.execute(f"select count(*) from {table} t where t::text like %s", (f"%{made['key']}%",))
        assert found.fetchone() == (0,), f"the secret lies in {table}"


def test_a_retried_key_creation_returns_the_same_secret_to_the_same_caller(admin: Caller) -> None:
    body, key = {"name": "robot", "role": "admin"}, fresh("op")
    first = admin.call("POST", "/admin/api-keys", body, key=key)
    again = admin.call("POST", "/admin/api-keys", body, key=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    other = Caller(admin.http, first.json()["key"])
    assert other.call("POST", "/admin/api-keys", body, key=key).json()["id"] != first.json()["id"]


def test_a_revoked_key_is_refused_from_then_on(admin: Caller) -> None:
    tenant = new_tenant(admin)
    (key,) = admin.get("/admin/api-keys", tenant_id=tenant.tenant_id)["items"]
    tenant.get("/skus")
    assert admin.call("DELETE", f"/admin/api-keys/{key['id']}").status_code == 204
    problem(tenant.call("GET", "/skus"), 401, "unauthenticated")
    (revoked,) = admin.get("/admin/api-keys", tenant_id=tenant.tenant_id)["items"]
    assert admin.call("DELETE", f"/admin/api-keys/{key['id']}").status_code == 204
    (twice,) = admin.get("/admin/api-keys", tenant_id=tenant.tenant_id)["items"]
    assert revoked["revoked_at"] == twice["revoked_at"] is not None


def test_a_key_needs_a_role_that_fits_its_tenant(admin: Caller) -> None:
    absent = str(uuid.uuid4())
    assert refusal(admin.call("POST", "/admin/api-keys", {"name": "x", "role": "tenant"})) == (422, "invalid")
    assert refusal(admin.call("POST", "/admin/api-keys", {"name": "x", "role": "fleet", "tenant_id": absent})) == (
        422,
        "invalid",
    )
    assert refusal(admin.call("POST", "/admin/api-keys", {"name": "x", "role": "root"})) == (422, "invalid")
    assert refusal(admin.call("POST", "/admin/api-keys", {"name": "x", "role": "tenant", "tenant_id": absent})) == (
        404,
        "not_found",
    )


def test_everything_an_operator_writes_is_audited(admin: Caller) -> None:
    tenant = admin.make("/admin/tenants", {"name": fresh("tenant")})
    admin.put(f"/admin/tenants/{tenant['id']}/quota", {"gpus_limit": 3})
    admin.call("PATCH", f"/admin/tenants/{tenant['id']}", {"state": "suspended"})
    admin.make("/admin/tenants", {"name": fresh("another")})
    entries = admin.every("/admin/audit", 500, subject=f"tenants/{tenant['id']}")
    assert [entry["action"] for entry in entries] == ["tenant.create", "tenant.set_quota", "tenant.change_state"]
    assert entries[1]["detail"] == {"gpus_limit": 3}
    assert {entry["principal"]["kind"] for entry in entries} == {"admin"}
    assert all(entry["request_id"] for entry in entries)


def test_a_refused_write_leaves_an_audit_entry(admin: Caller) -> None:
    tenant_id = uuid.uuid4()
    problem(admin.call("PUT", f"/admin/tenants/{tenant_id}/quota", {"gpus_limit": 1}), 404, "not_found")
    (entry,) = admin.every("/admin/audit", 500, subject=f"tenants/{tenant_id}")
    assert (entry["action"], entry["status"], entry["code"]) == ("tenant.set_quota", 404, "not_found")
