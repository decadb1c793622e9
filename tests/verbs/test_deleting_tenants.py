"""Deleting a tenant: what keeps it, what goes with it, and that it is gone for every process."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest

from berth.local.servers import LocalPostgres
from orchestrator.allocations.commands.waits import fail_unstarted
from orchestrator.notifications.commands import open_subscription
from orchestrator.notifications.store import SubscriptionRetention
from orchestrator.operations.execution import Context
from orchestrator.problems import TenantDeleted
from orchestrator.tenants.principals import Principal
from tests.allocations.driving import run_with
from tests.api.calling import Caller, at_once, fresh, new_place, new_tenant, one_gpu, problem, rent, ssh_key
from tests.api.processes import public_process
from tests.api.reservations.reserving import HOLDER
from tests.support.public_api import PublicApi
from tests.support.waiting import wait_for
from tests.verifying import broken_promises

NOTHING = {"allocations": 0, "reservations": 0, "cleanups": 0}
PROVEN = {"runtime_verified_absent": True, "reason": "looked"}


def delete(admin: Caller, tenant: Caller, key: str | None = None) -> httpx.Response:
    """Delete the tenant."""
    return admin.call("DELETE", f"/admin/tenants/{tenant.tenant_id}", key=key)


def users_of(admin: Caller, tenant: Caller) -> dict[str, int]:
    """The counts with which the deletion is refused."""
    refused = problem(delete(admin, tenant), 409, "tenant_in_use")
    assert admin.get(f"/admin/tenants/{tenant.tenant_id}")["state"] == "active", "a refusal changes nothing"
    tenant.get("/me")
    users: dict[str, int] = refused["users"]
    assert all(f"{count} {kind}" in refused["detail"] for kind, count in users.items() if count)
    return users


@pytest.fixture
def url(api: PublicApi, postgres_server: LocalPostgres) -> str:
    """The database's address."""
    return postgres_server.url(api.database.info.dbname)


def require_promises(url: str) -> None:
    """`berth verify` finds no violation."""
    assert broken_promises(url) == {}


def test_a_tenant_is_deleted_once_and_stays_readable(api: PublicApi, admin: Caller) -> None:
    tenant = new_tenant(admin, gpus_limit=8)
    path = f"/admin/tenants/{tenant.tenant_id}"
    before = admin.get(path)
    key = fresh("delete")
    assert delete(admin, tenant, key).status_code == 204
    again = delete(admin, tenant, key)
    assert (again.status_code, again.headers["idempotent-replayed"]) == (204, "true")
    gone = admin.get(path)
    assert (gone["state"], gone["gpus_limit"], gone["gpus_used"]) == ("deleted", 0, 0)
    assert gone["deleted_at"] > gone["created_at"]
    assert gone["row_version"] > before["row_version"]
    assert delete(admin, tenant).status_code == 204, "another deletion finds nothing left to do"
    assert admin.get(path) == gone
    assert gone in admin.every("/admin/tenants", 500)
    audited = admin.get("/admin/audit", subject=f"tenants/{tenant.tenant_id}")["items"]
    assert [entry["action"] for entry in audited if entry["detail"]] == ["tenant.create", "tenant.delete"]
    told = api.database.execute(
        "select tenant_id, payload ->> 'name', (payload ->> 'api_keys')::integer from outbox where event_type = 'tenant.deleted'"
        " and subject = %s",
        (f"tenants/{tenant.tenant_id}",),
    ).fetchall()
    assert told == [(None, before["name"], 1)], "operators receive one event"
    problem(admin.call("DELETE", f"/admin/tenants/{uuid.uuid4()}"), 404, "not_found")


def test_tenants_delete_no_tenant(admin: Caller) -> None:
    tenant, other = new_tenant(admin), new_tenant(admin)
    for victim in (tenant, other):
        problem(delete(tenant, victim), 403, "forbidden")
        assert admin.get(f"/admin/tenants/{victim.tenant_id}")["state"] == "active"


def test_neither_id_nor_name_is_used_again(admin: Caller) -> None:
    tenant = new_tenant(admin)
    path = f"/admin/tenants/{tenant.tenant_id}"
    name = admin.get(path)["name"]
    assert delete(admin, tenant).status_code == 204
    refused = problem(admin.call("POST", "/admin/tenants", {"name": name}), 409, "already_exists")
    assert (refused["existing_id"], refused["state"]) == (tenant.tenant_id, "deleted")
    for method, suffix, body in (("PATCH", "", {"state": "active"}), ("PUT", "/quota", {"gpus_limit": 4})):
        problem(admin.call(method, path + suffix, body), 409, "tenant_deleted")
    key = {"name": "late", "role": "tenant", "tenant_id": tenant.tenant_id}
    problem(admin.call("POST", "/admin/api-keys", key), 409, "tenant_deleted")
    assert admin.get(path)["state"] == "deleted"


def test_what_a_tenant_holds_keeps_it(api: PublicApi, admin: Caller, url: str) -> None:
    tenant, place = new_tenant(admin), new_place(admin, api.database)
    seat = admin.make("/admin/resources", {"id": fresh("seat")})["id"]
    held = tenant.make("/reservations", {"holder_id": HOLDER, "resources": [seat]})["reservation_id"]
    assert users_of(admin, tenant) == NOTHING | {"reservations": 1}
    tenant.make(f"/reservations/{held}/confirm", {"holder_id": HOLDER})
    assert users_of(admin, tenant) == NOTHING | {"reservations": 1}
    tenant.make(f"/reservations/{held}/cancel", {"holder_id": HOLDER})

    rented = [rent(tenant, place)["allocation_id"] for _ in range(2)]
    assert users_of(admin, tenant) == NOTHING | {"allocations": 2}
    for allocation_id in rented:
        tenant.make(f"/allocations/{allocation_id}/release")
    assert users_of(admin, tenant) == NOTHING | {"allocations": 2}, "their cleanup is not proven yet"
    for allocation_id in rented:
        admin.make(f"/admin/allocations/{allocation_id}/force-cleanup", PROVEN)

    failed = rent(tenant, place)["allocation_id"]
    fail(url, failed)
    assert users_of(admin, tenant) == NOTHING | {"cleanups": 1}
    admin.make(f"/admin/allocations/{failed}/force-cleanup", PROVEN)
    assert delete(admin, tenant).status_code == 204


def fail(url: str, allocation_id: str) -> None:
    """The allocation's deadline passes before a workflow starts; its cleanup is not proven."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "update allocations set waits_since = waits_since - interval '1 day', waits_until = waits_until - interval '1 day'"
            " where id = %s",
            (allocation_id,),
        )

    async def work(context: Context) -> None:
        assert await fail_unstarted(context, uuid.UUID(allocation_id))

    run_with(url, work)


def test_another_tenants_holdings_keep_no_other(api: PublicApi, admin: Caller) -> None:
    tenant, other, place = new_tenant(admin), new_tenant(admin), new_place(admin, api.database)
    rented = rent(other, place)["allocation_id"]
    assert delete(admin, tenant).status_code == 204
    assert other.get(f"/allocations/{rented}")["status"] == "requested"
    assert len(other.get("/ssh-keys")["items"]) == 1


def configure(api: PublicApi, tenant: Caller) -> None:
    """One SSH key, webhook, retention policy, notification subscription and key-value pair."""
    tenant.make("/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()})
    tenant.make("/webhooks", {"url": "https://hooks.example/", "types": []})
    http = tenant.http
    headers = {"authorization": f"Bearer {tenant.key}"}
    body = {"prevent_truncate": 1}
    assert http.put("/v1/retention/backup", json=body, headers=headers).status_code in (200, 201)
    assert commit(tenant).json()["status"] == "committed"
    api.database.execute(
        "insert into notification_subscriptions (scope, name, version, versions_max, kept_until)"
        " values (%s, 'mine', 0, 10, clock_timestamp() + interval '1 hour')",
        (tenant.tenant_id,),
    )


def commit(tenant: Caller) -> httpx.Response:
    """Commit one key-value pair."""
    headers = {"authorization": f"Bearer {tenant.key}"}
    body = {"request_id": str(uuid.uuid4()), "operations": [{"type": "write", "key": "a2V5", "value": "dmFsdWU="}]}
    return tenant.http.post("/v1/commit", json=body, headers=headers)


def test_configuration_goes_with_the_tenant(api: PublicApi, admin: Caller, url: str) -> None:
    tenant, other = new_tenant(admin), new_tenant(admin)
    for each in (tenant, other):
        configure(api, each)
    assert delete(admin, tenant).status_code == 204
    (told,) = api.database.execute(
        "select payload from (select payload, subject, event_type from outbox"
        " union all select payload, subject, event_type from log) e where event_type = 'tenant.deleted' and subject = %s",
        (f"tenants/{tenant.tenant_id}",),
    ).fetchall()
    payload: Any = told[0]
    removed = {name: payload[name] for name in ("api_keys", "ssh_keys", "webhooks", "subscriptions", "policies")}
    assert removed == dict.fromkeys(removed, 1)
    (key,) = admin.get("/admin/api-keys", tenant_id=tenant.tenant_id)["items"]
    assert key["revoked_at"] is not None
    assert left(api, tenant) == []
    assert len(left(api, other)) == 4, "another tenant keeps its own"
    assert pairs(api, tenant) == 1, "a sweeper removes keys and values"
    while api.database.execute("select kv_forget(1)").fetchone() != (0,):
        pass
    assert (pairs(api, tenant), pairs(api, other)) == (0, 1)
    counted = api.database.execute(
        "select keys, bytes from kv_namespaces where id = %s", (tenant.tenant_id,)
    ).fetchone()
    assert counted == (0, 0)
    require_promises(url)


LEFT = """
select 'ssh' from ssh_keys where tenant_id = %(id)s
union all select 'webhook' from webhooks where tenant_id = %(id)s and state <> 'deleted'
union all select 'subscription' from notification_subscriptions where scope = %(id)s
union all select 'policy' from retention_policies where scope = %(id)s
"""


def left(api: PublicApi, tenant: Caller) -> list[Any]:
    """The configuration that there is of a tenant."""
    return api.database.execute(LEFT, {"id": tenant.tenant_id}).fetchall()


def pairs(api: PublicApi, tenant: Caller) -> object:
    """How many keys are in the tenant's namespace."""
    row = api.database.execute("select count(*) from kv_keys where namespace = %s", (tenant.tenant_id,)).fetchone()
    assert row is not None
    return row[0]


def test_an_operator_still_reads_and_settles_its_history(api: PublicApi, admin: Caller, url: str) -> None:
    tenant, place = new_tenant(admin), new_place(admin, api.database)
    rented = rent(tenant, place)["allocation_id"]
    tenant.make(f"/allocations/{rented}/release")
    admin.make(f"/admin/allocations/{rented}/force-cleanup", PROVEN)
    assert delete(admin, tenant).status_code == 204
    assert [each["allocation_id"] for each in admin.every("/allocations", 500, tenant_id=tenant.tenant_id)] == [rented]
    admin.get(f"/allocations/{rented}/timeline", tenant_id=tenant.tenant_id)
    admin.get("/usage", tenant_id=tenant.tenant_id)
    paid = admin.make(f"/admin/tenants/{tenant.tenant_id}/top-ups", {"amount_micro_units": 5})
    assert paid["amount_micro_units"] == 5
    require_promises(url)


def test_of_simultaneous_deletions_each_succeeds_and_one_deletes(api: PublicApi, admin: Caller) -> None:
    tenant = new_tenant(admin)
    assert {answer.status_code for answer in at_once(*[lambda: delete(admin, tenant)] * 6)} == {204}
    entries = admin.get("/admin/audit", subject=f"tenants/{tenant.tenant_id}")["items"]
    assert len(entries) == 7, "each deletion is recorded"
    assert [entry["action"] for entry in entries if entry["detail"]] == ["tenant.create", "tenant.delete"]


def test_no_subscription_is_opened_after_a_deletion(admin: Caller, url: str) -> None:
    tenant = uuid.UUID(new_tenant(admin).tenant_id)
    retention, caller = SubscriptionRetention(60.0, 10), Principal("admin", tenant, tenant)

    async def opened(context: Context) -> int:
        return await open_subscription(
            context, tenant, "mine", 0, caller=caller, request_id="r", retention=retention, subscriptions_max=5
        )

    assert run_with(url, opened) == 0
    assert admin.call("DELETE", f"/admin/tenants/{tenant}").status_code == 204
    with pytest.raises(TenantDeleted):
        run_with(url, opened)


@pytest.fixture(scope="module")
def second(
    api: PublicApi, postgres_server: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """Another API process over the same database, which caches credentials for an hour."""
    settings = {"BERTH_CREDENTIAL_CACHE_SECONDS": "3600"}
    url = postgres_server.url(api.database.info.dbname)
    with public_process(url, tmp_path_factory.mktemp("second"), settings) as http:
        yield http


def test_a_process_that_still_knows_the_key_writes_nothing(
    api: PublicApi, admin: Caller, url: str, second: httpx.Client
) -> None:
    tenant, place = new_tenant(admin), new_place(admin, api.database)
    there = Caller(second, tenant.key, tenant.tenant_id)
    seat = admin.make("/admin/resources", {"id": fresh("seat")})["id"]
    create = one_gpu(there, place)
    tenant.get("/me")
    assert delete(admin, tenant).status_code == 204
    problem(tenant.call("GET", "/me"), 401, "unauthenticated")
    there.get("/skus")
    holds = ({"resources": [seat]}, {"sku": place.sku, "gpus": 1, "region": place.region})
    problem(there.call("POST", "/allocations", create), 403, "forbidden")
    for wanted in holds:
        problem(there.call("POST", "/reservations", {"holder_id": HOLDER, **wanted}), 403, "forbidden")
    problem(commit(there), 403, "forbidden")
    problem(there.call("POST", "/ssh-keys", {"name": "late", "public_key": ssh_key()}), 409, "tenant_deleted")
    problem(there.call("POST", "/webhooks", {"url": "https://hooks.example/", "types": []}), 409, "tenant_deleted")
    require_promises(url)


def test_every_process_refuses_the_key_soon(admin: Caller, second: httpx.Client) -> None:
    tenant = new_tenant(admin)
    tenant.get("/me")
    assert delete(Caller(second, admin.key), tenant).status_code == 204
    wait_for(lambda: tenant.call("GET", "/me").status_code == 401, "the other process to refuse the key")
