"""Privileged reads: each read by an operator that shows something of tenants leaves a row."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from fastapi.routing import iter_route_contexts

from orchestrator.edge.audited_requests import is_read_of_tenants
from orchestrator.edge.edge import OPEN_PATHS
from orchestrator.edge.routes import PUBLIC_ROUTES
from orchestrator.http.audited.minutes import MINUTE
from orchestrator.http.audited.refusal_counts import CALLERS_MAX, ROWS_MAX, RefusalCounts
from tests.api.calling import Caller, Place, new_node, new_tenant, problem, rent
from tests.api.reservations.reserving import UNKNOWN_ID
from tests.audit.reading import newest, rows_after
from tests.support.public_api import PublicApi

OF_FLEET = {
    "/api/v1/admin/approvals", "/api/v1/admin/approvals/{approval_id}", "/api/v1/admin/audit", "/api/v1/audit",
    "/api/v1/admin/bmcs", "/api/v1/admin/consumers",
    "/api/v1/admin/firmware-lists", "/api/v1/admin/hardware", "/api/v1/admin/hardware/{serial}",
    "/api/v1/admin/hardware/{serial}/history", "/api/v1/admin/images", "/api/v1/admin/images/{name}",
    "/api/v1/admin/maintenance", "/api/v1/admin/maintenance/{window_id}", "/api/v1/admin/nodes",
    "/api/v1/admin/nodes/{node_id}/attestation", "/api/v1/admin/nodes/{node_id}/bmc", "/api/v1/admin/nodes/{node_id}/burn-ins",
    "/api/v1/admin/nodes/{node_id}/deploy-system", "/api/v1/admin/nodes/{node_id}/deploy-system/run",
    "/api/v1/admin/nodes/{node_id}/deploy-system/tasks", "/api/v1/admin/nodes/{node_id}/gpu-resets",
    "/api/v1/admin/nodes/{node_id}/health", "/api/v1/admin/nodes/{node_id}/health/reports",
    "/api/v1/admin/nodes/{node_id}/quarantines", "/api/v1/admin/nodes/{node_id}/topology", "/api/v1/admin/pools",
    "/api/v1/admin/repairs", "/api/v1/admin/repairs/{repair_id}", "/api/v1/admin/sites", "/api/v1/admin/sites/{site_id}",
    "/api/v1/admin/sites/{site_id}/segments", "/api/v1/availability", "/api/v1/images", "/api/v1/me",
    "/api/v1/operations/{key:path}", "/api/v1/regions", "/api/v1/resources", "/api/v1/resources/{resource_id}", "/api/v1/skus",
    "/asyncapi.json", "/live", "/ok", "/v1/version",
}  # fmt: skip
"""Reads that show no tenant's object. A new route is recorded unless it is added here and in `OF_NO_TENANT`."""


def test_every_read_is_recorded_but_those_of_the_fleet_and_the_catalogue() -> None:
    reads = {
        str(route.path)
        for route in iter_route_contexts(PUBLIC_ROUTES)
        if "GET" in (getattr(route, "methods", None) or ()) and route.path not in OPEN_PATHS
    }
    unrecorded = {path for path in reads if not is_read_of_tenants(re.sub(r"\{[\w:]+\}", UNKNOWN_ID, path))}
    assert unrecorded == OF_FLEET
    assert len(reads - unrecorded) > 40


@pytest.mark.parametrize(
    ("path", "action", "subject"),
    [
        ("/api/v1/admin/dead-letters", "dead_letter.read", "dead-letters"),
        ("/api/v1/admin/tenants", "tenant.read", "tenants"),
        ("/api/v1/admin/fault-reports", "fault_report.read", "fault-reports"),
        ("/v1/kv", "kv.read", "kv"),
    ],
)
def test_a_read_of_tenants_objects_is_recorded(
    api: PublicApi, admin: Caller, path: str, action: str, subject: str
) -> None:
    after = newest(api)
    assert admin.http.get(path, headers={"authorization": f"Bearer {admin.key}"}).status_code == 200
    (row,) = rows_after(api, after)
    assert (row.action, row.subject, row.status, row.code) == (action, subject, 200, "ok")


def test_the_holders_on_a_node_are_read_with_a_row(api: PublicApi, admin: Caller, tenant: Caller, place: Place) -> None:
    rent(tenant, place)
    node = new_node(admin, place.region)["id"]
    after = newest(api)
    admin.get(f"/admin/nodes/{node}")
    assert [row.subject for row in rows_after(api, after)] == [f"nodes/{node}"]


def test_refusals_of_one_caller_beyond_the_bound_are_one_row_each_minute() -> None:
    counts, now = RefusalCounts(), datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
    row = {"kind": "tenant", "id": "k", "role": "member", "tenant": "t", "action": "allocation.create"}
    assert [counts.admit(row, now) for _ in range(ROWS_MAX + 5)] == [True] * ROWS_MAX + [False] * 5
    assert counts.admit(row | {"id": "other"}, now), "another caller has rows"
    assert counts.take(now) == []
    (summed,) = counts.take(now + MINUTE)
    assert (summed["id"], summed["tenant"], summed["detail"]) == ("k", "t", {"refusals": 5})
    assert counts.take(now + MINUTE) == []
    assert counts.admit(row, now + MINUTE), "the next minute has rows again"


def test_the_callers_counted_in_a_minute_are_bounded() -> None:
    counts, now = RefusalCounts(), datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    admitted = sum(counts.admit({"kind": "tenant", "id": str(number)}, now) for number in range(CALLERS_MAX + 500))
    assert admitted == CALLERS_MAX + ROWS_MAX
    (summed,) = counts.take(now + timedelta(minutes=2))
    assert (summed["id"], summed["detail"]) == ("others", {"refusals": 500 - ROWS_MAX})


def test_a_caller_that_is_refused_for_ever_leaves_so_many_rows(api: PublicApi, admin: Caller) -> None:
    tenant, after = new_tenant(admin), newest(api)
    for _ in range(2 * ROWS_MAX + 30):
        problem(tenant.call("POST", "/allocations", {"sku": 1}), 422, "invalid")
    rows = [row for row in rows_after(api, after) if row.tenant_id == tenant.tenant_id]
    assert ROWS_MAX <= len(rows) <= 2 * ROWS_MAX, "a minute may end between"
    assert {row.action for row in rows} <= {"allocation.create", "request.refuse"}
