"""Repetitions of a release, cancel or confirm over HTTP: few transactions, and the answers that each alone would have had."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, LiteralString

import httpx
import psycopg
import pytest

from orchestrator.http.principal_limits import REPETITIONS_MAX
from tests.api.calling import Caller, Place, fresh, new_tenant, problem, rent
from tests.support.public_api import PublicApi
from tests.support.waiting import wait_for

REPETITIONS = 200
HOLDER = {"holder_id": "order-9"}
ALLOCATION: LiteralString = "select from allocations where id = %s for no key update"
RESERVATION: LiteralString = "select from reservations where id = %s for no key update"


def stored(api: PublicApi, tenant: Caller) -> int:
    """How many operations of the tenant are stored: each is a transaction."""
    row = api.database.execute("select count(*) from operations where scope = %s", (tenant.tenant_id,)).fetchone()
    assert row is not None
    return int(str(row[0]))


@contextmanager
def locked(api: PublicApi, statement: LiteralString, subject: str) -> Iterator[Callable[[], int]]:
    """Lock the object in the block, which gets a callable that waits for the first request and returns its session's id."""
    where = api.database.info

    def waiting() -> list[int]:
        found = api.database.execute(
            "select pid from pg_stat_activity where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0"
        )
        return [int(str(row[0])) for row in found]

    def first() -> int:
        wait_for(lambda: len(waiting()) == 1, "the first request to wait for the lock")
        return waiting()[0]

    with psycopg.connect(where.dsn, password=where.password) as rival:
        rival.execute(statement, (subject,))
        yield first
        rival.rollback()


def held(api: PublicApi, tenant: Caller) -> str:
    """The id of a hold."""
    seat = api.admin.make("/admin/resources", {"id": fresh("seat")})["id"]
    return str(tenant.make("/reservations", {"resources": [seat], **HOLDER})["reservation_id"])


@pytest.mark.parametrize("verb", ["release", pytest.param("cancel", marks=pytest.mark.full), "confirm"])
def test_many_repetitions_take_few_transactions_and_get_the_same_answer(
    api: PublicApi, place: Place, verb: str
) -> None:
    """Those that wait together share one; a single request afterwards is answered the same."""
    tenant = new_tenant(api.admin)
    if verb == "release":
        subject, body, statement = str(rent(tenant, place)["allocation_id"]), None, ALLOCATION
        path = f"/allocations/{subject}/release"
    else:
        subject, body, statement = held(api, tenant), HOLDER, RESERVATION
        path = f"/reservations/{subject}/{verb}"
    before = stored(api, tenant)
    with ThreadPoolExecutor(REPETITIONS) as pool:
        with locked(api, statement, subject) as first:
            sent: list[Future[httpx.Response]] = [pool.submit(tenant.call, "POST", path, body)]
            first()
            sent += [pool.submit(tenant.call, "POST", path, body) for _ in range(REPETITIONS - 1)]
        answers = [one.result() for one in sent]
    after = stored(api, tenant)
    alone = tenant.call("POST", path, body)
    effects = [answer for answer in answers if answer.json().get("result") == "ok"]
    assert len(effects) == (0 if verb == "release" else 1), "one confirmed or cancelled it; a release does not say"
    repeated = {(answer.status_code, answer.content) for answer in answers if answer not in effects}
    assert repeated == {(alone.status_code, alone.content)}
    assert alone.status_code == (202 if verb == "release" else 200)
    assert after - before <= 4 * REPETITIONS / REPETITIONS_MAX, "the first, and few for each group that waited"
    assert stored(api, tenant) == after + 1


def test_repetitions_with_different_keys_are_different_operations(api: PublicApi, place: Place) -> None:
    tenant = new_tenant(api.admin)
    allocation = rent(tenant, place)["allocation_id"]
    before = stored(api, tenant)
    with ThreadPoolExecutor(10) as pool:
        sent = [
            pool.submit(tenant.call, "POST", f"/allocations/{allocation}/release", key=f"release-{number}")
            for number in range(10)
        ]
        assert {one.result().status_code for one in sent} == {202}
    assert stored(api, tenant) == before + 10
    again = tenant.call("POST", f"/allocations/{allocation}/release", key="release-7")
    assert again.headers["idempotent-replayed"] == "true"


def test_a_first_request_whose_session_ends_fails_alone(api: PublicApi, place: Place) -> None:
    tenant = new_tenant(api.admin)
    allocation = str(rent(tenant, place)["allocation_id"])
    path = f"/allocations/{allocation}/release"
    with ThreadPoolExecutor(20) as pool:
        with locked(api, ALLOCATION, allocation) as first:
            failing = pool.submit(tenant.call, "POST", path)
            session = first()
            others = [pool.submit(tenant.call, "POST", path) for _ in range(19)]
            api.database.execute("select pg_terminate_backend(%s)", (session,))
            problem(failing.result(), 503, "database_unavailable")
        assert {one.result().status_code for one in others} == {202}


def test_another_tenants_request_shares_no_answer(api: PublicApi, place: Place) -> None:
    """Nor does another API key of the tenant: the audit names the one that released."""
    tenant, other = new_tenant(api.admin), new_tenant(api.admin)
    made = api.admin.make("/admin/api-keys", {"name": fresh("key"), "role": "tenant", "tenant_id": tenant.tenant_id})
    second = Caller(tenant.http, made["key"], tenant.tenant_id)
    allocation = str(rent(tenant, place)["allocation_id"])
    path = f"/allocations/{allocation}/release"
    before: Any = stored(api, tenant)
    with ThreadPoolExecutor(20) as pool:
        with locked(api, ALLOCATION, allocation) as first:
            blocking = pool.submit(tenant.call, "POST", path)
            first()
            foreign = [pool.submit(other.call, "POST", path) for _ in range(5)]
            for one in foreign:
                problem(one.result(), 404, "not_found")
            seconds = [pool.submit(second.call, "POST", path) for _ in range(5)]
        assert {one.result().status_code for one in [blocking, *seconds]} == {202}
    assert stored(api, tenant) >= before + 2
    unknown = tenant.call("POST", f"/allocations/{uuid.uuid4()}/release")
    problem(unknown, 404, "not_found")
