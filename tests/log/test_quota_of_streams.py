"""An operator sets how many streams and sockets a tenant may have open in a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.local.servers import LocalPostgres
from tests.api.calling import Caller, insert_admin_key, new_tenant, refusal
from tests.api.processes import public_process
from tests.databases import copied_database
from tests.log.notified import refused as socket_refused
from tests.log.streaming import refused, subscribed


@pytest.fixture
def admin(postgres_server: LocalPostgres, migrated_template: str, tmp_path: Path) -> Iterator[Caller]:
    """A process whose tenants may have four by default."""
    settings = {"BERTH_FEED_TENANT_SUBSCRIBERS_MAX": "4"}
    with copied_database(postgres_server, migrated_template) as url, public_process(url, tmp_path, settings) as http:
        yield Caller(http, insert_admin_key(url))


def streams_of(tenant: Caller) -> tuple[int, int]:
    """The tenant's quota of streams as it reads it: limit and use."""
    limits = tenant.get("/me")["limits"]
    (found,) = (one for one in limits["quotas"] if one["quota"] == "streams")
    assert limits["subscribers_max"] == found["limit"]
    return found["limit"], found["used"]


def test_an_operator_sets_how_many_streams_one_tenant_may_have(admin: Caller) -> None:
    tenant, neighbour = new_tenant(admin), new_tenant(admin)
    path = f"/admin/tenants/{tenant.tenant_id}/quota"
    admin.put(path, {"limits": {"streams": 1}})
    with subscribed(tenant):
        assert streams_of(tenant) == (1, 1)
        assert {"quota": "streams", "limit": 1, "used": 1} in admin.get(path)["quotas"]
        assert refusal(refused(tenant)) == (429, "concurrency_limited")
        status, document = socket_refused(tenant)
        assert (status, document["code"]) == (429, "concurrency_limited"), "sockets count as well"
        with subscribed(neighbour), subscribed(neighbour):
            assert streams_of(neighbour) == (4, 2)
        admin.put(path, {"limits": {"streams": 5}})
        with subscribed(tenant), subscribed(tenant), subscribed(tenant), subscribed(tenant):
            assert streams_of(tenant) == (5, 5)
            assert refusal(refused(tenant)) == (429, "concurrency_limited")
            admin.put(path, {"limits": {"streams": 0}})
            assert streams_of(tenant) == (0, 5), "what is open stays open"
            assert refusal(refused(tenant)) == (429, "concurrency_limited")
    admin.put(path, {"limits": {"streams": None}})
    assert streams_of(tenant)[0] == 4
    with subscribed(tenant):
        pass
