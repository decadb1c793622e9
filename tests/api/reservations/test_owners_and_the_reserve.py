"""The reserve of connections serves owners alone: a tenant that names random ids takes none of it (P13)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
from prometheus_client import REGISTRY

from tests.api.calling import Caller, new_place, new_tenant, problem, rent
from tests.api.reservations.narrow import WAITING
from tests.api.reservations.reserving import act, hold, seat
from tests.support.public_api import PublicApi
from tests.support.waiting import wait_for

FORGED = 40


def claims(caller: str) -> float:
    """How many requests of such callers needed the reserve in this process."""
    return REGISTRY.get_sample_value("berth_api_reserve_claims_total", {"caller": caller}) or 0.0


@contextmanager
def exhausted(api: PublicApi) -> Iterator[ThreadPoolExecutor]:
    """An application whose common connections all wait for locks, for another tenant's requests."""
    other = new_tenant(api.admin)
    locked = hold(other, seat(api))["reservation_id"]
    database = api.database

    def is_waiting(sessions: int) -> Callable[[], bool]:
        return lambda: database.execute(WAITING).fetchone() == (sessions,)

    where = database.info
    with psycopg.connect(where.dsn, password=where.password) as rival, ThreadPoolExecutor(4 * FORGED) as pool:
        rival.execute("select from reservations where id = %s for no key update", (locked,))
        rival.execute("select from tenant_quotas where tenant_id = %s for no key update", (other.tenant_id,))
        quota = pool.submit(api.admin.call, "PUT", f"/admin/tenants/{other.tenant_id}/quota", {"gpus_limit": 3})
        wait_for(is_waiting(1), "a write to wait")
        confirm = pool.submit(act, other, "confirm", locked)
        wait_for(is_waiting(2), "a confirm to wait")
        try:
            yield pool
        finally:
            rival.rollback()
        assert (quota.result().status_code, confirm.result().status_code) == (200, 200)


def test_a_flood_of_foreign_and_random_ids_leaves_the_reserve_to_owners(narrow: PublicApi) -> None:
    """Each forged request is refused without a connection; without the lookup they would be answered 404 over the reserve."""
    flooder, owner = new_tenant(narrow.admin), new_tenant(narrow.admin)
    place = new_place(narrow.admin, narrow.database)
    released, kept = (rent(owner, place)["allocation_id"] for _ in range(2))
    confirmed, cancelled = (hold(owner, seat(narrow))["reservation_id"] for _ in range(2))
    before = claims("not_owned"), claims("owner")
    with exhausted(narrow) as pool:
        forged: list[Future[Any]] = []
        for number in range(FORGED):
            allocation, reservation = (kept, confirmed) if number % 2 else (uuid.uuid4(), uuid.uuid4())
            forged.append(pool.submit(flooder.call, "POST", f"/allocations/{allocation}/release"))
            forged += [pool.submit(act, flooder, verb, str(reservation)) for verb in ("confirm", "cancel")]
        answers = [
            owner.call("POST", f"/allocations/{released}/release"),
            act(owner, "cancel", cancelled),
            act(owner, "confirm", confirmed),
        ]
        for one in forged:
            assert "serves objects of the caller alone" in problem(one.result(), 503, "overloaded")["detail"]
    assert [answer.status_code for answer in answers] == [202, 200, 200]
    assert (claims("not_owned") - before[0], claims("owner") - before[1]) >= (3 * FORGED, 3)
    assert owner.get(f"/allocations/{kept}")["status"] == "requested"


def test_an_operator_needs_no_object_of_its_own_for_the_reserve(narrow: PublicApi) -> None:
    tenant = new_tenant(narrow.admin)
    allocation = rent(tenant, new_place(narrow.admin, narrow.database))["allocation_id"]
    operator = Caller(narrow.admin.http, narrow.admin.key)
    with exhausted(narrow):
        answer = operator.call("POST", f"/admin/allocations/{allocation}/force-release", {"reason": "it burns"})
        missing = operator.call("POST", f"/admin/allocations/{uuid.uuid4()}/force-release", {"reason": "it burns"})
    assert answer.status_code == 202, answer.text
    problem(missing, 404, "not_found")
