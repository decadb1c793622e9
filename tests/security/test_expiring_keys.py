"""API keys with an expiry: refused from that instant on, also where they are cached, and never valid for longer than allowed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from berth.local.servers import LocalPostgres
from orchestrator.database.transactions import connect_database
from orchestrator.tenants.queries import find_principals
from tests.api.calling import Caller, fresh, insert_admin_key, new_tenant, problem
from tests.api.processes import public_process
from tests.databases import copied_database
from tests.support.waiting import wait_past

LIFETIME_SECONDS_MAX = 3_600
SETTINGS = {"BERTH_CREDENTIAL_CACHE_SECONDS": "3600", "BERTH_API_KEY_LIFETIME_SECONDS_MAX": str(LIFETIME_SECONDS_MAX)}


@pytest.fixture(scope="module")
def database_url(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    """A database for this module."""
    with copied_database(postgres_server, migrated_template) as url:
        yield url


@pytest.fixture(scope="module")
def admin(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """An operator of a process that trusts a cached key for an hour and lets none live longer."""
    with public_process(database_url, tmp_path_factory.mktemp("api"), SETTINGS) as http:
        yield Caller(http, insert_admin_key(database_url))


def after(seconds: float) -> str:
    """The time in this many seconds."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


@pytest.mark.full
def test_a_cached_key_is_refused_from_its_expiry_on(admin: Caller) -> None:
    tenant_id = new_tenant(admin).tenant_id
    body = {"name": "short", "role": "viewer", "tenant_id": tenant_id, "expires_at": after(5)}
    made = admin.make("/admin/api-keys", body)
    caller = Caller(admin.http, made["key"])
    assert caller.get("/me")["role"] == "viewer"
    asyncio.run(wait_past(datetime.fromisoformat(made["expires_at"])))
    problem(caller.call("GET", "/me"), 401, "unauthenticated")


def test_an_expired_key_is_not_found(admin: Caller, database_url: str) -> None:
    made = admin.make("/admin/api-keys", {"name": "short", "role": "viewer"})
    digest = hashlib.sha256(made["key"].encode()).digest()

    async def find() -> list[bytes]:
        database = connect_database(
            database_url, pool_size=1, reserve_size=1, lock_timeout_seconds=1, transaction_timeout_seconds=5,
            application="berth-test",
        )  # fmt: skip
        try:
            return list(await find_principals(database, [digest]))
        finally:
            await database.close()

    assert asyncio.run(find()) == [digest]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update api_keys set expires_at = clock_timestamp() where id = %s", (made["id"],))
    assert asyncio.run(find()) == []


def test_a_key_is_valid_no_longer_than_the_setting_allows(admin: Caller) -> None:
    body = {"name": fresh("key"), "role": "viewer"}
    problem(
        admin.call("POST", "/admin/api-keys", {**body, "expires_at": after(2 * LIFETIME_SECONDS_MAX)}), 422, "invalid"
    )
    problem(admin.call("POST", "/admin/api-keys", {**body, "expires_at": after(-1)}), 422, "invalid")
    made = admin.make("/admin/api-keys", {**body, "owner": "ci"})
    lives = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["created_at"])
    assert abs(lives.total_seconds() - LIFETIME_SECONDS_MAX) < 1
    (listed,) = [key for key in admin.every("/admin/api-keys", 500) if key["id"] == made["id"]]
    assert (listed["expires_at"], listed["owner"]) == (made["expires_at"], "ci")


def test_a_tenant_makes_no_key_that_is_valid_longer_than_the_setting_allows(admin: Caller) -> None:
    tenant = new_tenant(admin)
    body = {"name": fresh("key"), "role": "viewer"}
    late = after(2 * LIFETIME_SECONDS_MAX)
    problem(tenant.call("POST", "/api-keys", {**body, "expires_at": late}), 422, "invalid")
    made = tenant.make("/api-keys", body)
    problem(tenant.call("POST", f"/api-keys/{made['id']}/rotate", {"expires_at": late}), 422, "invalid")
    turned = tenant.make(f"/api-keys/{made['id']}/rotate")
    for key in (made, turned):
        lives = datetime.fromisoformat(key["expires_at"]) - datetime.fromisoformat(key["created_at"])
        assert abs(lives.total_seconds() - LIFETIME_SECONDS_MAX) < 1
    assert len(tenant.get("/api-keys")["items"]) == 3


def test_a_rotation_brings_a_key_from_before_the_setting_within_it(admin: Caller, database_url: str) -> None:
    tenant = new_tenant(admin)
    with psycopg.connect(database_url, autocommit=True) as connection:
        for ends in ("null", "clock_timestamp() + interval '1 year'"):
            connection.execute(
                f"update api_keys set expires_at = {ends} where tenant_id = %s".encode(), (tenant.tenant_id,)
            )
            own = tenant.get("/api-keys")["items"][0]["id"]
            turned = admin.make(f"/admin/api-keys/{own}/rotate", {"overlap_seconds": 600})
            lives = datetime.fromisoformat(turned["expires_at"]) - datetime.fromisoformat(turned["created_at"])
            assert abs(lives.total_seconds() - LIFETIME_SECONDS_MAX) < 1
            connection.execute("update api_keys set replaced_by = null where tenant_id = %s", (tenant.tenant_id,))


def test_a_retried_creation_returns_its_key_after_the_expiry_that_it_named(admin: Caller, database_url: str) -> None:
    body, key = {"name": fresh("key"), "role": "viewer", "expires_at": after(60)}, fresh("operation")
    first = admin.call("POST", "/admin/api-keys", body, key=key)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update api_keys set expires_at = clock_timestamp() where id = %s", (first.json()["id"],))
    again = admin.call("POST", "/admin/api-keys", body, key=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
