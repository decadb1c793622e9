"""API keys of a tenant, managed by its admins: what they may make, how a rotation ends, and which key stays."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from orchestrator.tenants.store.key_changes import ENDED_KEPT_MAX
from tests.api.calling import Caller, at_once, fresh, new_tenant, problem, refusal
from tests.support.public_api import PublicApi, admin, api
from tests.support.waiting import wait_for, wait_past

__all__ = ["admin", "api"]


@pytest.fixture
def tenant(admin: Caller) -> Caller:
    """A tenant with one key, of the role `admin`."""
    return new_tenant(admin)


def after(seconds: float) -> str:
    """The time in this many seconds."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def new_key(tenant: Caller, role: str = "admin", **members: Any) -> Any:
    """A new key of the tenant, as its response shows it."""
    return tenant.make("/api-keys", {"name": fresh("key"), "role": role, **members})


def caller_of(tenant: Caller, made: Any) -> Caller:
    """A client with a key of the tenant."""
    return Caller(tenant.http, made["key"], tenant.tenant_id)


def id_of(tenant: Caller) -> str:
    """The id of the tenant's first key."""
    return str(tenant.get("/me")["principal_id"])


def listed(tenant: Caller) -> dict[str, Any]:
    """The tenant's keys by id."""
    return {key["id"]: key for key in tenant.every("/api-keys", 500)}


def test_the_account_of_each_caller_has_a_version(admin: Caller, tenant: Caller) -> None:
    for caller in (admin, admin, tenant, tenant):
        assert int(caller.call("GET", "/me", min_version=1).headers["berth-version"]) >= 1


def test_an_admin_makes_lists_and_revokes_keys_of_its_tenant(admin: Caller, tenant: Caller) -> None:
    made = new_key(tenant, "member", owner="ci", expires_at=after(3_600))
    assert (made["role"], made["owner"], made["tenant_id"]) == ("member", "ci", tenant.tenant_id)
    member = caller_of(tenant, made)
    assert (member.get("/me")["role"], member.get("/me")["tenant"]["id"]) == ("member", tenant.tenant_id)
    assert tenant.call("DELETE", f"/api-keys/{made['id']}").status_code == 204
    problem(member.call("GET", "/me"), 401, "unauthenticated")
    keys = listed(tenant)
    assert keys.keys() == {id_of(tenant), made["id"]}
    assert keys[made["id"]]["revoked_at"] is not None
    assert "key" not in keys[made["id"]]
    assert tenant.call("DELETE", f"/api-keys/{made['id']}").status_code == 204
    assert listed(tenant) == keys, "a repetition changes nothing"
    assert admin.every("/admin/api-keys", 500, tenant_id=tenant.tenant_id) == list(keys.values())


def test_the_list_has_pages(tenant: Caller) -> None:
    made = [new_key(tenant, "viewer")["id"] for _ in range(4)]
    assert [key["id"] for key in tenant.every("/api-keys", 2)] == [id_of(tenant), *made]


@pytest.mark.parametrize("role", ["support", "fleet", "finance", "tenant", "root"])
def test_a_tenant_makes_no_key_of_another_role(tenant: Caller, role: str) -> None:
    assert refusal(tenant.call("POST", "/api-keys", {"name": "x", "role": role})) == (422, "invalid")
    assert listed(tenant).keys() == {id_of(tenant)}


def test_a_tenant_makes_no_key_of_another_tenant_or_of_operators(admin: Caller, tenant: Caller) -> None:
    other = new_tenant(admin)
    body = {"name": "x", "role": "admin"}
    for tenant_id in (other.tenant_id, None):
        assert refusal(tenant.call("POST", "/api-keys", {**body, "tenant_id": tenant_id})) == (422, "invalid")
    problem(tenant.call("POST", "/admin/api-keys", {**body, "tenant_id": tenant.tenant_id}), 403, "forbidden")
    problem(tenant.call("POST", "/api-keys", body, tenant_id=str(other.tenant_id)), 422, "invalid")
    assert listed(tenant).keys() == {id_of(tenant)}
    assert listed(other).keys() == {id_of(other)}


def test_a_tenant_neither_rotates_nor_revokes_a_key_outside_it(admin: Caller, tenant: Caller) -> None:
    other, operators = new_tenant(admin), admin.make("/admin/api-keys", {"name": "o", "role": "viewer"})
    keys = listed(other)
    for key_id in (id_of(other), operators["id"]):
        problem(tenant.call("DELETE", f"/api-keys/{key_id}"), 404, "not_found")
        problem(tenant.call("POST", f"/api-keys/{key_id}/rotate", {"overlap_seconds": 0}), 404, "not_found")
    assert listed(other) == keys
    assert Caller(admin.http, operators["key"]).get("/me")["role"] == "viewer"


@pytest.mark.full
def test_a_rotated_key_is_valid_during_the_overlap_and_refused_afterwards(tenant: Caller) -> None:
    made = new_key(tenant, "member", owner="ci")
    old = caller_of(tenant, made)
    turned = tenant.make(f"/api-keys/{made['id']}/rotate", {"overlap_seconds": 3})
    assert [turned[name] for name in ("name", "role", "owner", "tenant_id", "expires_at", "replaces")] == [
        made["name"], "member", "ci", tenant.tenant_id, None, made["id"],
    ]  # fmt: skip
    assert old.get("/me")["role"] == "member"
    assert caller_of(tenant, turned).get("/me")["principal_id"] == turned["id"]
    keys = listed(tenant)
    assert (keys[made["id"]]["replaced_by"], keys[made["id"]]["expires_at"]) == (
        turned["id"], turned["replaced_expires_at"],
    )  # fmt: skip
    assert keys[turned["id"]]["replaced_by"] is None
    overlap = datetime.fromisoformat(turned["replaced_expires_at"]) - datetime.fromisoformat(turned["created_at"])
    assert abs(overlap.total_seconds() - 3) < 1
    asyncio.run(wait_past(datetime.fromisoformat(turned["replaced_expires_at"])))
    problem(old.call("GET", "/me"), 401, "unauthenticated")
    assert caller_of(tenant, turned).get("/me")["role"] == "member"


def test_without_overlap_the_old_key_is_refused_at_once(tenant: Caller) -> None:
    made = new_key(tenant, "member")
    old = caller_of(tenant, made)
    assert old.get("/me")["role"] == "member"
    tenant.make(f"/api-keys/{made['id']}/rotate", {"overlap_seconds": 0})
    problem(old.call("GET", "/me"), 401, "unauthenticated")


def test_a_rotation_extends_no_key(api: PublicApi, tenant: Caller) -> None:
    made = new_key(tenant, "viewer", expires_at=after(600))
    turned = tenant.make(f"/api-keys/{made['id']}/rotate")
    assert turned["replaced_expires_at"] == made["expires_at"], "earlier than the end of the overlap"
    lives = datetime.fromisoformat(turned["expires_at"]) - datetime.fromisoformat(turned["created_at"])
    assert abs(lives.total_seconds() - 600) < 5
    named = tenant.make(f"/api-keys/{turned['id']}/rotate", {"expires_at": after(60)})
    assert datetime.fromisoformat(named["expires_at"]) < datetime.fromisoformat(turned["expires_at"])
    far = new_key(tenant, "viewer", expires_at="9999-12-30T00:00:00Z")
    api.database.execute("update api_keys set created_at = created_at - interval '9 days' where id = %s", (far["id"],))
    assert tenant.make(f"/api-keys/{far['id']}/rotate")["expires_at"].startswith("9999-12-31")


def test_a_key_is_rotated_once_and_only_while_it_is_valid(api: PublicApi, tenant: Caller) -> None:
    revoked, expired, replaced = (new_key(tenant, "viewer")["id"] for _ in range(3))
    tenant.call("DELETE", f"/api-keys/{revoked}")
    api.database.execute("update api_keys set expires_at = clock_timestamp() where id = %s", (expired,))
    tenant.make(f"/api-keys/{replaced}/rotate")
    before = listed(tenant)
    for key_id, state in ((revoked, "revoked"), (expired, "expired"), (replaced, "replaced")):
        refused = problem(tenant.call("POST", f"/api-keys/{key_id}/rotate"), 409, "invalid_state")
        assert refused["state"] == state
    assert listed(tenant) == before


def test_a_key_that_rotates_itself_stays_valid_for_a_retry(tenant: Caller) -> None:
    own, key = id_of(tenant), fresh("rotation")
    problem(tenant.call("POST", f"/api-keys/{own}/rotate", {"overlap_seconds": 59}), 422, "invalid")
    first = tenant.call("POST", f"/api-keys/{own}/rotate", {"overlap_seconds": 60}, key=key)
    again = tenant.call("POST", f"/api-keys/{own}/rotate", {"overlap_seconds": 60}, key=key)
    assert (first.status_code, again.json()) == (201, first.json())
    assert len(listed(tenant)) == 2


def test_the_last_live_admin_key_is_not_revoked_by_its_tenant(api: PublicApi, admin: Caller, tenant: Caller) -> None:
    own = id_of(tenant)
    expired, replaced, revoked, member = (new_key(tenant, role)["id"] for role in ("admin", "admin", "admin", "member"))
    successor = tenant.make(f"/api-keys/{replaced}/rotate")["id"]
    assert tenant.call("DELETE", f"/api-keys/{revoked}").status_code == 204
    assert tenant.call("DELETE", f"/api-keys/{successor}").status_code == 204
    api.database.execute("update api_keys set expires_at = clock_timestamp() where id = %s", (expired,))
    before = listed(tenant)
    key = fresh("revocation")
    refused = tenant.call("DELETE", f"/api-keys/{own}", key=key)
    assert problem(refused, 409, "last_admin_key")["outcome"] == "not_done"
    assert tenant.call("DELETE", f"/api-keys/{own}", key=key).json() == refused.json(), "stored"
    assert listed(tenant) == before
    for other in (expired, replaced, member):
        assert tenant.call("DELETE", f"/api-keys/{other}").status_code == 204
    assert admin.call("DELETE", f"/admin/api-keys/{own}").status_code == 204, "an operator may"
    problem(tenant.call("GET", "/me"), 401, "unauthenticated")


def test_an_admin_key_is_revoked_while_another_is_valid(tenant: Caller) -> None:
    second = caller_of(tenant, new_key(tenant))
    assert tenant.call("DELETE", f"/api-keys/{id_of(tenant)}").status_code == 204
    problem(second.call("DELETE", f"/api-keys/{id_of(second)}"), 409, "last_admin_key")


def test_of_two_revocations_of_the_last_two_admin_keys_one_succeeds(api: PublicApi, tenant: Caller) -> None:
    second = caller_of(tenant, new_key(tenant))
    ids = [id_of(tenant), id_of(second)]
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    with (
        ThreadPoolExecutor(2) as pool,
        psycopg.connect(api.database.info.dsn, password=api.database.info.password) as rival,
    ):
        # Both have decided, or wait to, when the first can write.
        rival.execute("select from api_keys where id = any (%s) for update", (ids,))
        answers = [
            pool.submit(caller.call, "DELETE", f"/api-keys/{key_id}")
            for caller, key_id in zip((second, tenant), ids, strict=True)
        ]
        wait_for(lambda: api.database.execute(waiting).fetchone() == (2,), "both revocations wait for a lock")
        rival.rollback()
        found = Counter(answer.result().status_code for answer in answers)
    assert found == {204: 1, 409: 1}
    live = "select count(*) from api_keys where id = any (%s) and revoked_at is null"
    assert api.database.execute(live, (ids,)).fetchone() == (1,)


def limit_keys(admin: Caller, tenant: Caller, limit: int) -> None:
    """Set the tenant's quota of API keys."""
    admin.put(f"/admin/tenants/{tenant.tenant_id}/quota", {"limits": {"api_keys": limit}})


def test_keys_that_are_made_together_stop_exactly_at_the_quota(admin: Caller, tenant: Caller) -> None:
    limit_keys(admin, tenant, 4)
    of_tenant, of_operator = (
        {"name": "k", "role": "viewer"},
        {"name": "k", "role": "viewer", "tenant_id": tenant.tenant_id},
    )
    answers = at_once(
        *[lambda: tenant.call("POST", "/api-keys", of_tenant)] * 4,
        *[lambda: admin.call("POST", "/admin/api-keys", of_operator)] * 4,
    )
    assert Counter(answer.status_code for answer in answers) == {201: 3, 409: 5}
    for answer in answers:
        if answer.status_code == 409:
            refused = problem(answer, 409, "quota_exceeded")
            assert (refused["quota"], refused["limit"], refused["used"]) == ("api_keys", 4, 4)
    assert {"quota": "api_keys", "limit": 4, "used": 4} in tenant.get("/me")["limits"]["quotas"]


def test_only_live_keys_count_in_the_quota(api: PublicApi, admin: Caller, tenant: Caller) -> None:
    limit_keys(admin, tenant, 2)
    body = {"name": "k", "role": "viewer"}
    first = new_key(tenant, "viewer")["id"]
    problem(tenant.call("POST", "/api-keys", body), 409, "quota_exceeded")
    assert tenant.call("DELETE", f"/api-keys/{first}").status_code == 204
    second = new_key(tenant, "viewer")["id"]
    api.database.execute("update api_keys set expires_at = clock_timestamp() where id = %s", (second,))
    third = new_key(tenant, "viewer")["id"]
    problem(tenant.call("POST", f"/api-keys/{third}/rotate"), 409, "quota_exceeded")
    tenant.make(f"/api-keys/{third}/rotate", {"overlap_seconds": 0})
    assert {"quota": "api_keys", "limit": 2, "used": 2} in tenant.get("/me")["limits"]["quotas"]


def test_ended_keys_beyond_the_bound_are_deleted(api: PublicApi, tenant: Caller) -> None:
    oldest = new_key(tenant, "viewer")["id"]
    tenant.call("DELETE", f"/api-keys/{oldest}")
    api.database.execute(
        "insert into api_keys (tenant_id, role, name, prefix, secret_hash, revoked_at)"
        " select %s, 'tenant', 'old', 'p', sha256(convert_to(%s || n, 'UTF8')), clock_timestamp()"
        " from generate_series(1, %s) n",
        (tenant.tenant_id, tenant.tenant_id, ENDED_KEPT_MAX),
    )
    made = new_key(tenant, "viewer")["id"]
    keys = listed(tenant)
    assert len(keys) == ENDED_KEPT_MAX + 2
    assert oldest not in keys
    assert {made, id_of(tenant)} < keys.keys()


def test_the_changes_of_keys_are_audited(admin: Caller, tenant: Caller) -> None:
    made = new_key(tenant, "viewer", owner="ci")
    turned = tenant.make(f"/api-keys/{made['id']}/rotate", {"overlap_seconds": 60})
    tenant.call("DELETE", f"/api-keys/{made['id']}")
    rows = tenant.every("/audit", 500, subject=f"api-keys/{made['id']}")
    assert [row["action"] for row in rows] == ["api_key.create", "api_key.rotate", "api_key.revoke"]
    assert {row["principal"]["id"] for row in rows} == {id_of(tenant)}
    assert {row["tenant_id"] for row in rows} == {tenant.tenant_id}
    assert (rows[0]["detail"]["owner"], rows[0]["detail"]["role"]) == ("ci", "viewer")
    assert rows[1]["detail"]["replaced_by"] == turned["id"]
    assert admin.every("/admin/audit", 500, subject=f"api-keys/{made['id']}") == rows


def test_an_operator_rotates_any_key(admin: Caller, tenant: Caller) -> None:
    own = id_of(tenant)
    turned = admin.make(f"/admin/api-keys/{own}/rotate", {"overlap_seconds": 0})
    problem(tenant.call("GET", "/me"), 401, "unauthenticated")
    assert caller_of(tenant, turned).get("/me")["tenant"]["id"] == tenant.tenant_id
    operators = admin.make("/admin/api-keys", {"name": "o", "role": "fleet"})
    again = admin.make(f"/admin/api-keys/{operators['id']}/rotate")
    assert (again["role"], again["tenant_id"]) == ("fleet", None)
