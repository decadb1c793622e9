"""Break-glass keys: the event of a use is committed before the request has an effect, once per key and minute."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from berth.local.servers import LocalPostgres
from orchestrator.app import _note_break_glass
from orchestrator.database.transactions import connect_database
from orchestrator.http.audited.break_glass import INTERVAL_SECONDS, BreakGlassUses
from orchestrator.tenants.principals import Principal
from tests.api.calling import Caller, at_once, fresh, new_tenant, problem
from tests.databases import copied_database
from tests.support.public_api import PublicApi, admin, api
from tests.support.waiting import read_until

__all__ = ["admin", "api"]
EVENTS = """
select payload from (select event_type, subject, tenant_id, payload, occurred_at from outbox
                     union all select event_type, subject, tenant_id, payload, occurred_at from log) e
where event_type = 'key.break_glass_used' and subject = 'api-keys/' || %s and tenant_id is null order by occurred_at
"""


def new_key(admin: Caller, **members: Any) -> tuple[Caller, str]:
    """A break-glass key that was not used yet, and its id."""
    body = {"name": fresh("emergency"), "role": "admin", "break_glass": True, **members}
    made = admin.make("/admin/api-keys", body)
    assert made["break_glass"] is True
    return Caller(admin.http, made["key"]), made["id"]


def events(api: PublicApi, key_id: str) -> list[Any]:
    """The events of the key's uses."""
    return [payload for (payload,) in api.database.execute(EVENTS, (key_id,)).fetchall()]


def test_a_use_is_an_event_for_operators_and_an_audit_row(api: PublicApi, admin: Caller) -> None:
    emergency, key_id = new_key(admin, owner="on-call")
    assert events(api, key_id) == []
    emergency.get("/me")
    (event,) = events(api, key_id)
    assert (event["key_id"], event["role"], event["owner"]) == (key_id, "admin", "on-call")
    (row,) = admin.every("/admin/audit", 500, action="api_key.break_glass_use", principal=key_id)
    assert (row["subject"], row["principal"]["id"], row["detail"]["owner"]) == (f"api-keys/{key_id}", key_id, "on-call")


def test_uses_within_a_minute_are_one_event(api: PublicApi, admin: Caller) -> None:
    emergency, key_id = new_key(admin)
    at_once(*[lambda: emergency.get("/me")] * 8)
    emergency.make("/admin/tenants", {"name": fresh("tenant")})
    problem(emergency.call("POST", "/admin/tenants", {}), 422, "invalid")
    assert len(events(api, key_id)) == 1


def test_a_refused_request_is_a_use(api: PublicApi, admin: Caller) -> None:
    emergency, key_id = new_key(admin, role="viewer")
    problem(emergency.call("POST", "/admin/tenants", {"name": fresh("tenant")}), 403, "role_required")
    assert len(events(api, key_id)) == 1


def test_the_event_of_a_use_is_committed_before_its_effect(api: PublicApi, admin: Caller) -> None:
    emergency, key_id = new_key(admin)
    name = fresh("tenant")
    emergency.make("/admin/tenants", {"name": name})
    order = """
        select (select xmin::text::bigint from tenants where name = %s),
               (select xmin::text::bigint from outbox where event_type = 'key.break_glass_used' and subject = %s)
    """
    row = api.database.execute(order, (name, f"api-keys/{key_id}")).fetchone()
    assert row is not None
    effect, use = row
    assert isinstance(effect, int)
    assert isinstance(use, int)
    assert use < effect
    assert len(events(api, key_id)) == 1


@pytest.mark.full
def test_without_its_event_a_use_is_refused_and_does_nothing(api: PublicApi, admin: Caller) -> None:
    emergency, key_id = new_key(admin)
    name = fresh("tenant")
    info = api.database.info
    with psycopg.connect(info.dsn, password=info.password) as rival:
        rival.execute("select from api_keys where id = %s for update", (key_id,))
        refused = problem(emergency.call("POST", "/admin/tenants", {"name": name}), 503, "database_unavailable")
        assert refused["outcome"] == "not_done"
        assert name not in [tenant["name"] for tenant in admin.every("/admin/tenants", 500)]
    emergency.make("/admin/tenants", {"name": name})
    assert len(events(api, key_id)) == 1


def test_the_next_minute_and_another_process_are_covered(
    postgres_server: LocalPostgres, migrated_template: str
) -> None:
    back = "update api_keys set break_glass_event_at = clock_timestamp() - make_interval(secs => %s)"
    insert = (
        "insert into api_keys (role, name, prefix, secret_hash, break_glass)"
        " values ('admin', 'emergency', 'p', sha256('k'), true) returning id"
    )

    async def run(url: str, connection: psycopg.Connection[Any]) -> list[int]:
        row = connection.execute(insert).fetchone()
        assert row is not None
        principal = Principal("admin", row[0], None, None, True)
        database = connect_database(
            url, pool_size=1, reserve_size=1, lock_timeout_seconds=1, transaction_timeout_seconds=5, application="test"
        )
        first, second, third, fourth = (BreakGlassUses(database, _note_break_glass) for _ in range(4))

        async def use(process: BreakGlassUses) -> int:
            await process.require_event(principal, "192.0.2.1")
            return len(connection.execute(EVENTS, (str(principal.id),)).fetchall())

        try:
            counts = [await use(first), await use(first), await use(second)]
            connection.execute(back, (INTERVAL_SECONDS,))
            counts += [await use(first), await use(third)]
            # The memory of a process ends with the interval, not an interval after its own query.
            connection.execute(back, (INTERVAL_SECONDS - 0.5,))
            counts.append(await use(fourth))
            return [*counts, await read_until(lambda: use(fourth), lambda count: count == 3, 10.0)]
        finally:
            await database.close()

    with (
        copied_database(postgres_server, migrated_template) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        assert asyncio.run(run(url, connection)) == [1, 1, 1, 1, 2, 2, 3]


def test_a_tenants_key_is_no_break_glass_key(admin: Caller) -> None:
    tenant = new_tenant(admin)
    body = {"name": "x", "role": "admin", "break_glass": True}
    problem(admin.call("POST", "/admin/api-keys", {**body, "tenant_id": tenant.tenant_id}), 422, "invalid")
    problem(tenant.call("POST", "/api-keys", body), 422, "invalid")
    assert [key["break_glass"] for key in tenant.get("/api-keys")["items"]] == [False]


def test_it_is_listed_and_a_rotation_keeps_it(api: PublicApi, admin: Caller) -> None:
    _, key_id = new_key(admin)
    turned = admin.make(f"/admin/api-keys/{key_id}/rotate")
    assert turned["break_glass"] is True
    found = {key["id"]: key["break_glass"] for key in admin.every("/admin/api-keys", 500)}
    assert found[key_id] is found[turned["id"]] is True
    Caller(admin.http, turned["key"]).get("/me")
    assert len(events(api, turned["id"])) == 1
    assert [
        api.database.execute("select count(*) from api_keys where break_glass and tenant_id is not null").fetchone()
    ] == [(0,)]


@pytest.mark.parametrize("path", ["/v1/kv", "/v1/version", "/api/v1/allocations"])
def test_each_way_in_is_a_use(api: PublicApi, admin: Caller, path: str) -> None:
    emergency, key_id = new_key(admin)
    emergency.http.get(path, headers={"authorization": f"Bearer {emergency.key}"})
    assert len(events(api, key_id)) == 1
