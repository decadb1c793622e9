"""One tenant fills what is bounded: it is refused at its quota, exactly, and no other tenant notices."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest

from berth.local.servers import LocalPostgres
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.database.table_bounds import gather_counts
from orchestrator.database.transactions import Transaction, connect_database
from orchestrator.operations.commands import retire_operations
from orchestrator.operations.execution import Context, Done, Limits, run_once
from orchestrator.operations.refusals import OperationQuotaExceeded
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import Problem, Quota
from orchestrator.settings import Settings
from orchestrator.verification.counted import check_counts
from orchestrator.verification.verdict import Bounds
from tests.api.calling import Caller, at_once, fresh, insert_admin_key, new_tenant, problem, ssh_key
from tests.api.processes import public_process
from tests.databases import copied_database
from tests.keyvalue.committing import b64, new_request_id
from tests.placement.fleet import Fleet, create_all, create_of
from tests.support.waiting import wait_for

LIMITS = {
    "BERTH_OPERATIONS_MAX": "300",
    "BERTH_TENANT_OPERATIONS_MAX": "60",
    "BERTH_TENANT_RESERVATIONS_MAX": "12",
    "BERTH_TENANT_HOLDS_MAX": "5",
    "BERTH_TENANT_SSH_KEYS_MAX": "3",
    "BERTH_WEBHOOKS_MAX": "4",
    "BERTH_RETENTION_POLICIES_MAX": "3",
    "BERTH_KV_NAMESPACE_KEYS_MAX": "6",
    "BERTH_KV_LOG_BYTES_PER_DAY_MAX": "20000",
    "BERTH_TENANT_GPUS_DEFAULT": "3",
}


@pytest.fixture
def database(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    with copied_database(postgres_server, migrated_template) as url:
        yield url


@pytest.fixture
def admin(database: str, tmp_path: Any) -> Iterator[Caller]:
    with public_process(database, tmp_path / "api", LIMITS) as http:
        yield Caller(http, insert_admin_key(database))


def quotas(tenant: Caller) -> dict[str, tuple[int, int]]:
    """Limit and use of each quota, as the tenant reads them."""
    return {one["quota"]: (one["limit"], one["used"]) for one in tenant.get("/me")["limits"]["quotas"]}


def refused(answer: httpx.Response, quota: str, limit: int, used: int) -> None:
    found = problem(answer, 409, "quota_exceeded")
    assert (found["quota"], found["limit"], found["used"], found["outcome"]) == (quota, limit, used, "not_done")


def commit(tenant: Caller, *operations: Mapping[str, Any], **members: Any) -> httpx.Response:
    """A transaction with a new request id."""
    body = {"request_id": new_request_id(), "operations": list(operations), **members}
    return tenant.http.post("/v1/commit", json=body, headers={"authorization": f"Bearer {tenant.key}"})


def write_of(key: str, value: bytes) -> dict[str, str]:
    return {"type": "write", "key": b64(key.encode()), "value": b64(value)}


def require_right_counts(url: str) -> None:
    """`berth verify` finds every count equal to its rows."""
    with psycopg.connect(url) as connection:
        assert check_counts(connection, Bounds()).violations == []


@pytest.mark.full
def test_a_tenant_that_asks_about_random_keys_fills_its_own_quota_alone(admin: Caller, database: str) -> None:
    hostile, neighbour = new_tenant(admin), new_tenant(admin)
    answers = [hostile.call("GET", f"/operations/{uuid.uuid4()}") for _ in range(350)]
    assert [answer.status_code for answer in answers] == [200] * 60 + [409] * 290
    refused(answers[-1], "operations", 60, 60)
    refused(hostile.call("POST", "/ssh-keys", {"name": "a", "public_key": ssh_key()}), "operations", 60, 60)
    made = neighbour.call("POST", "/ssh-keys", {"name": "a", "public_key": ssh_key()})
    assert made.status_code == 201, made.text
    assert quotas(hostile)["operations"] == (60, 60)
    assert quotas(neighbour)["operations"] == (60, 1)
    require_right_counts(database)


def test_at_the_quota_a_repeated_request_gets_its_first_response(admin: Caller) -> None:
    tenant, key = new_tenant(admin), fresh("known")
    body = {"name": "a", "public_key": ssh_key()}
    first = tenant.call("POST", "/ssh-keys", body, key=key)
    for _ in range(59):
        assert tenant.call("GET", f"/operations/{uuid.uuid4()}").status_code == 200
    refused(tenant.call("GET", f"/operations/{uuid.uuid4()}"), "operations", 60, 60)
    again = tenant.call("POST", "/ssh-keys", body, key=key)
    assert (again.status_code, again.json()) == (201, first.json())
    assert tenant.get(f"/operations/{key}")["state"] == "committed"


def test_at_the_quota_a_hold_is_cancelled(admin: Caller) -> None:
    tenant, seat = new_tenant(admin), fresh("seat")
    admin.make("/admin/resources", {"id": seat})
    held = tenant.make("/reservations", {"resources": [seat], "holder_id": "h", "ttl_seconds": 600})["reservation_id"]
    while tenant.call("GET", f"/operations/{uuid.uuid4()}").status_code == 200:
        pass
    assert quotas(tenant)["operations"] == (60, 60)
    assert tenant.call("POST", f"/reservations/{held}/cancel", {"holder_id": "h"}).status_code == 200


def test_holds_that_come_together_stop_exactly_at_the_quota(admin: Caller, database: str) -> None:
    hostile, neighbour = new_tenant(admin), new_tenant(admin)
    seats = [fresh("seat") for _ in range(17)]
    for seat in seats:
        admin.make("/admin/resources", {"id": seat})

    def hold(tenant: Caller, seat: str) -> httpx.Response:
        return tenant.call("POST", "/reservations", {"resources": [seat], "holder_id": "h", "ttl_seconds": 600})

    answers = at_once(*(lambda seat=seat: hold(hostile, seat) for seat in seats[:16]))
    assert Counter(answer.status_code for answer in answers) == {201: 5, 409: 11}
    refused(next(answer for answer in answers if answer.status_code == 409), "holds", 5, 5)
    assert hold(neighbour, seats[16]).status_code == 201
    assert (quotas(hostile)["holds"], quotas(hostile)["reservations"]) == ((5, 5), (12, 5))
    held = [answer.json()["reservation_id"] for answer in answers if answer.status_code == 201]
    assert hostile.call("POST", f"/reservations/{held[0]}/confirm", {"holder_id": "h"}).status_code == 200
    assert hostile.call("POST", f"/reservations/{held[1]}/cancel", {"holder_id": "h"}).status_code == 200
    assert (quotas(hostile)["holds"], quotas(hostile)["reservations"]) == ((5, 3), (12, 4))
    require_right_counts(database)


@pytest.mark.parametrize(
    ("quota", "limit", "path", "body"),
    [
        ("ssh_keys", 3, "/ssh-keys", lambda: {"name": fresh("k"), "public_key": ssh_key()}),
        ("webhooks", 4, "/webhooks", lambda: {"url": "https://hooks.example.com/"}),
    ],
)
def test_objects_that_are_added_together_stop_exactly_at_the_quota(
    admin: Caller, quota: str, limit: int, path: str, body: Any
) -> None:
    tenant = new_tenant(admin)
    answers = at_once(*(lambda: tenant.call("POST", path, body()) for _ in range(16)))
    assert Counter(answer.status_code for answer in answers) == {201: limit, 409: 16 - limit}
    refused(next(answer for answer in answers if answer.status_code == 409), quota, limit, limit)
    assert quotas(tenant)[quota] == (limit, limit)


def test_an_operator_sets_limits_and_the_default_again(admin: Caller) -> None:
    tenant = new_tenant(admin)
    path = f"/admin/tenants/{tenant.tenant_id}/quota"
    changed = admin.put(path, {"limits": {"ssh_keys": 1, "operations": 100}})
    assert changed["limits"] == {"ssh_keys": 1, "operations": 100}
    assert (quotas(tenant)["ssh_keys"], quotas(tenant)["operations"]) == ((1, 0), (100, 0))
    tenant.make("/ssh-keys", {"name": "a", "public_key": ssh_key()})
    refused(tenant.call("POST", "/ssh-keys", {"name": "b", "public_key": ssh_key()}), "ssh_keys", 1, 1)
    assert admin.put(path, {"limits": {"ssh_keys": None}})["limits"] == {"operations": 100}
    tenant.make("/ssh-keys", {"name": "b", "public_key": ssh_key()})
    admin.put(path, {"gpus_limit": 7})
    shown = admin.get(path)
    assert (shown["gpus_limit"], shown["gpus_used"], shown["tenant_id"]) == (7, 0, tenant.tenant_id)
    assert {"quota": "ssh_keys", "limit": 3, "used": 2} in shown["quotas"]
    for body in ({}, {"limits": {"nonsense": 1}}, {"limits": {"holds": -1}}, {"limits": {"holds": "1"}}):
        problem(admin.call("PUT", path, body), 422, "invalid")
    audited = admin.get("/admin/audit", subject=f"tenants/{tenant.tenant_id}")["items"]
    assert [entry["detail"] for entry in audited if (entry["action"], entry["code"]) == ("tenant.set_quota", "ok")] == [
        {"limits": {"ssh_keys": 1, "operations": 100}}, {"limits": {"ssh_keys": None}}, {"gpus_limit": 7},
    ]  # fmt: skip


def test_commits_stop_at_the_bytes_of_the_day(admin: Caller, database: str) -> None:
    hostile, neighbour = new_tenant(admin), new_tenant(admin)
    answers = [commit(hostile, write_of("k", bytes(3_000))) for _ in range(8)]
    assert [answer.status_code for answer in answers] == [200] * 4 + [409] * 4
    limit, used = quotas(hostile)["log_bytes_per_day"]
    assert limit == 20_000
    assert 16_000 < used <= limit
    refused(answers[-1], "log_bytes_per_day", limit, used)
    assert commit(neighbour, write_of("k", bytes(3_000))).status_code == 200
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("update kv_namespaces set log_day = log_day - 1 where id = %s", (hostile.tenant_id,))
    assert quotas(hostile)["log_bytes_per_day"] == (20_000, 0)
    assert commit(hostile, write_of("k", bytes(3_000))).status_code == 200


def test_refused_preconditions_count_in_the_bytes_of_the_day(admin: Caller) -> None:
    tenant = new_tenant(admin)
    version = commit(tenant, write_of("k" * 900, b"1")).json()["version"]
    reads = [{"type": "point_read", "key": b64(b"k" * 900), "version": version - 1} for _ in range(4)]
    answers = [commit(tenant, preconditions=reads) for _ in range(8)]
    assert {answer.json()["status"] for answer in answers if answer.status_code == 200} == {"not_committed"}
    assert answers[-1].status_code == 409
    limit, used = quotas(tenant)["log_bytes_per_day"]
    refused(answers[-1], "log_bytes_per_day", limit, used)


def test_keys_stop_at_their_quota_and_may_always_be_deleted(admin: Caller) -> None:
    tenant = new_tenant(admin)
    answers = at_once(*(lambda n=n: commit(tenant, write_of(f"k{n}", b"1")) for n in range(12)))
    assert Counter(answer.status_code for answer in answers) == {200: 6, 409: 6}
    refused(next(answer for answer in answers if answer.status_code == 409), "kv_keys", 6, 6)
    assert commit(tenant, {"type": "range_delete", "begin": b64(b"k"), "end": b64(b"l")}).status_code == 200
    admin.put(f"/admin/tenants/{tenant.tenant_id}/quota", {"limits": {"kv_keys": 7}})
    assert commit(tenant, write_of("new", b"1")).status_code == 200
    refused(commit(tenant, write_of("newer", b"1")), "kv_keys", 7, 7)


def operation(scope: UUID, *, ending: bool = False) -> Operation:
    """A write with a new key."""
    return Operation(scope, str(uuid.uuid4()), b"a" * 32, 3_600.0, ending=ending)


async def done(_: Transaction) -> Done:
    return Done(200, {})


@asynccontextmanager
async def limited(url: str, operations: int) -> AsyncIterator[Context]:
    """A context whose sessions state this default of the quota of operations."""
    database = connect_database(
        url, pool_size=8, reserve_size=1, lock_timeout_seconds=10, transaction_timeout_seconds=30, application="test",
        operations_max=1_000_000, tenant_rows_max={"operations": operations},
    )  # fmt: skip
    try:
        yield Context(database, Limits())
    finally:
        await database.close()


def test_of_writes_that_commit_together_exactly_the_quota_succeeds(database_url: str) -> None:
    fleet = Fleet(database_url)
    tenant = fleet.tenant().id

    async def scene() -> list[Answer | BaseException]:
        async with limited(database_url, 10) as context:
            writes = [run_once(context, operation(tenant), done, tenant) for _ in range(40)]
            endings = [run_once(context, operation(tenant, ending=True), done, tenant) for _ in range(5)]
            return list(await asyncio.gather(*endings, *writes, return_exceptions=True))

    found = asyncio.run(scene())
    assert [type(one) for one in found[:5]] == [Answer] * 5, "what ends something is never refused"
    others = Counter(type(one) for one in found[5:])
    assert others[Answer] + others[OperationQuotaExceeded] == 40
    assert 5 <= others[Answer] <= 10
    assert fleet.one("select count(*) from operations where not ending") == others[Answer]
    assert fleet.one("select sum(number)::int from tenant_rows where kind = 'operations'") == 5 + others[Answer]
    require_right_counts(database_url)


def test_a_list_of_creates_goes_on_without_the_tenant_at_its_quota(database_url: str) -> None:
    """Four creates of one tenant with room for two, among four of another with room for all."""
    fleet = Fleet(database_url, slice_nodes=1)
    hostile, neighbour = fleet.tenant(), fleet.tenant()
    fleet.connection.execute(
        "update tenant_quotas set limits = %s where tenant_id = %s", ('{"operations": 2}', hostile.id)
    )
    creates = [create_of(tenant) for _ in range(4) for tenant in (hostile, neighbour)]

    async def scene() -> list[Answer | Problem]:
        async with limited(database_url, 1_000) as context:
            return await create_all(context, CatalogueCache(context.database, 1.0), creates)

    found = asyncio.run(scene())
    words = [one.code if isinstance(one, Problem) else str(one.status) for one in found]
    assert words[1::2] == ["201"] * 4
    assert sorted(words[::2]) == ["201", "201", "quota_exceeded", "quota_exceeded"]
    require_right_counts(database_url)


def test_the_quota_found_stays_until_the_commit(database_url: str) -> None:
    """Two add the last operation: the second waits for the first, and finds no room."""
    fleet = Fleet(database_url)
    tenant = fleet.tenant().id
    options = "-c berth.tenant_operations_max=1"
    insert = "insert into operations (scope, key, fingerprint, retire_after) values (%s, %s, %s, now())"
    with (
        psycopg.connect(database_url, options=options) as first,
        psycopg.connect(database_url, options=options) as second,
    ):
        first.execute(insert, (tenant, "a", b"a" * 32))
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(second.execute, insert, (tenant, "b", b"a" * 32))
            wait_for(
                lambda: (
                    fleet.one("select count(*) from pg_stat_activity where wait_event = 'advisory'") == 1
                    or waiting.done()
                ),
                "the second to wait",
            )
            assert not waiting.done()
            first.commit()
            with pytest.raises(psycopg.Error, match="the quota of operations is reached"):
                waiting.result()


@pytest.mark.parametrize("change", ["update tenant_rows set number = number + 1", "delete from tenant_rows"])
def test_verify_finds_a_count_that_is_wrong(database_url: str, change: str) -> None:
    fleet = Fleet(database_url)
    insert = "insert into operations (scope, key, fingerprint, retire_after) values (%s, 'a', %s, now())"
    fleet.connection.execute(insert, (fleet.tenant().id, b"a" * 32))
    require_right_counts(database_url)
    fleet.connection.execute(change.encode())
    with psycopg.connect(database_url) as connection:
        (violation,) = check_counts(connection, Bounds()).violations
    assert violation.startswith("operations of tenant ")


def test_a_new_tenant_has_the_default_of_gpus(admin: Caller) -> None:
    assert admin.make("/admin/tenants", {"name": fresh("tenant")})["gpus_limit"] == 3
    assert admin.make("/admin/tenants", {"name": fresh("tenant"), "gpus_limit": 9})["gpus_limit"] == 9
    assert admin.make("/admin/tenants", {"name": fresh("tenant"), "gpus_limit": None})["gpus_limit"] is None
    assert Settings(database_url="postgresql://nowhere").tenant_gpus_default == 0


def test_every_quota_has_a_finite_default_and_is_shown(admin: Caller) -> None:
    defaults = Settings(database_url="postgresql://nowhere").quota_defaults()
    assert set(defaults) == set(Quota)
    shown = quotas(new_tenant(admin))
    assert set(shown) == {quota.value for quota in Quota}
    assert {quota for quota, (_, used) in shown.items() if used} == {"api_keys"}, "the key of the request"


def test_retired_operations_and_sessions_that_are_gone_make_room(database_url: str) -> None:
    fleet = Fleet(database_url)
    tenant = fleet.tenant().id

    async def scene() -> None:
        async with limited(database_url, 3) as context:
            for _ in range(3):
                await run_once(context, replace(operation(tenant), retention_seconds=0.0), done, tenant)
            with pytest.raises(OperationQuotaExceeded):
                await run_once(context, operation(tenant), done, tenant)
            assert await retire_operations(context, 2) == 2
            for _ in range(2):
                await run_once(context, operation(tenant), done, tenant)
            with pytest.raises(OperationQuotaExceeded):
                await run_once(context, operation(tenant), done, tenant)
            async with context.database.transaction() as tx:
                await gather_counts(tx)

    asyncio.run(scene())
    gone = "select count(*) from pg_stat_activity where application_name = 'test'"
    wait_for(lambda: fleet.one(gone) == 0, "the sessions to end")
    asyncio.run(_gather(database_url))
    assert fleet.one("select count(*) from tenant_rows") == 1
    require_right_counts(database_url)


async def _gather(url: str) -> None:
    async with limited(url, 3) as context, context.database.transaction() as tx:
        await gather_counts(tx)
