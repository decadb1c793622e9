"""A hold for a node or resource that few ask for is not served together with those for one that many ask for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg

from tests.api.calling import Caller, fresh, insert_admin_key, new_tenant
from tests.api.processes import metric_of, public_process
from tests.api.reservations.reserving import try_hold
from tests.support.waiting import wait_for

TENANTS, HOLDS_OF_EACH = 5, 4


def test_a_hold_for_a_quiet_resource_begins_beside_the_crowd(database_url: str, tmp_path: Path) -> None:
    """While nothing can be stored: the crowd's holds take every slot and wait, and the other begins in a batch for itself."""
    with (
        public_process(database_url, tmp_path, {"BERTH_LOCK_TIMEOUT_SECONDS": "30"}) as http,
        psycopg.connect(database_url) as holding,
        ThreadPoolExecutor(TENANTS * HOLDS_OF_EACH + 1) as pool,
    ):
        admin = Caller(http, insert_admin_key(database_url))
        contended, quiet = (str(admin.make("/admin/resources", {"id": fresh("seat")})["id"]) for _ in range(2))
        tenant, *tenants = [new_tenant(admin) for _ in range(TENANTS + 1)]
        holding.execute("lock table operations in exclusive mode")
        crowd = [pool.submit(try_hold, rival, contended) for rival in tenants for _ in range(HOLDS_OF_EACH)]
        wait_for(lambda: metric_of(http, 'berth_api_requests_in_flight{zone="public"}') >= len(crowd), "the crowd")
        before = metric_of(http, 'berth_api_combined_light_total{kind="holds"}')
        other = pool.submit(try_hold, tenant, quiet)
        wait_for(lambda: metric_of(http, 'berth_api_combined_light_total{kind="holds"}') > before, "the other's begin")
        holding.rollback()
        assert other.result().status_code == 201
        statuses = [hold.result().status_code for hold in crowd]
        assert (statuses.count(201), statuses.count(409)) == (1, len(crowd) - 1)
