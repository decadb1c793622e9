"""Connections that are kept for what ends something: a flood of one verb leaves one to each other (P13)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.api.calling import new_place, new_tenant, rent
from tests.api.reservations.narrow import WAITING
from tests.api.reservations.reserving import act, hold, seat
from tests.support.public_api import PublicApi
from tests.support.waiting import wait_for

FORGED = 300
LOCKED = 8


@pytest.mark.full
def test_a_release_gets_through_a_flood_of_confirms(narrow: PublicApi) -> None:
    """Forged ones, and ones of locked reservations, while no other connection is free either."""
    tenant, other = new_tenant(narrow.admin), new_tenant(narrow.admin)
    place = new_place(narrow.admin, narrow.database)
    allocation = rent(tenant, place)["allocation_id"]
    locked = [hold(tenant, seat(narrow))["reservation_id"] for _ in range(LOCKED)]
    waiting = narrow.database

    def is_waiting(sessions: int) -> Callable[[], bool]:
        return lambda: waiting.execute(WAITING).fetchone() == (sessions,)

    where = narrow.database.info
    with psycopg.connect(where.dsn, password=where.password) as rival, ThreadPoolExecutor(FORGED + LOCKED + 1) as pool:
        rival.execute("select from reservations where id = any (%s::uuid[]) for no key update", (locked,))
        rival.execute("select from tenant_quotas where tenant_id = %s for no key update", (other.tenant_id,))
        path = f"/admin/tenants/{other.tenant_id}/quota"
        ordinary = pool.submit(narrow.admin.call, "PUT", path, {"gpus_limit": 3})
        wait_for(is_waiting(1), "the ordinary write to wait")
        confirms = [pool.submit(act, tenant, "confirm", one) for one in locked]
        wait_for(is_waiting(3), "the confirms to wait")
        try:
            forged = [pool.submit(act, tenant, "confirm", str(uuid.uuid4())) for _ in range(FORGED)]
            released = tenant.call("POST", f"/allocations/{allocation}/release")
            assert released.status_code == 202, released.text
            assert not any(one.done() for one in confirms), "they are still waiting"
        finally:
            rival.rollback()
        assert ordinary.result().status_code == 200, ordinary.result().text
        assert {one.result().status_code for one in confirms} == {200}
        # A forged confirm may find no connection in time.
        assert {one.result().status_code for one in forged} <= {404, 503}
