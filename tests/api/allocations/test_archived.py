"""An archived allocation: gone for its tenant, shown with its segment to operators, and unknown to every other tenant."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.api.calling import Caller, Place, new_tenant, problem, rent
from tests.support.public_api import PublicApi

NAME = "2026-01-01/000000000001-allocations-a-b-0.ndjson.gz"
ARCHIVE = """
with segment as (
    insert into archive_segments (sequence, manifest_sha256, destination, deleted, deleted_at, name)
    select coalesce(max(sequence), 0) + 1, repeat('0', 64), '/srv/archive', 1, '2026-02-01', %(name)s from archive_segments
    returning sequence
), remembered as (
    insert into archived_allocations (allocation_id, segment, tenant_id)
    select a.id, s.sequence, case when %(known)s then a.tenant_id end from allocations a, segment s where a.id = %(id)s
), timeline as (delete from allocation_timeline where allocation_id = %(id)s)
delete from allocations where id = %(id)s
"""
WAYS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("GET", "", None), ("GET", "/timeline", None), ("POST", "/release", None), ("PATCH", "", {"name": "other"}),
]  # fmt: skip


def archived(api: PublicApi, tenant: Caller, place: Place, *, known: bool = True, name: str | None = NAME) -> str:
    """The path of an allocation that only the archive has; `known`: its tenant was stored."""
    made = rent(tenant, place)["allocation_id"]
    with api.database.transaction():
        api.database.execute("set local session_replication_role = replica")
        api.database.execute(ARCHIVE.encode(), {"id": made, "known": known, "name": name})
    return f"/allocations/{made}"


@pytest.mark.parametrize(("method", "below", "body"), WAYS)
def test_its_own_tenant_gets_when_and_no_place(
    api: PublicApi, admin: Caller, place: Place, method: str, below: str, body: dict[str, Any] | None
) -> None:
    tenant = new_tenant(admin)
    path = archived(api, tenant, place)
    gone = problem(tenant.call(method, path + below, body), 410, "archived")
    assert (gone["archived_at"], gone["outcome"]) == ("2026-02-01T00:00:00.000000Z", "not_done")
    assert "segment" not in gone
    assert "/srv/archive" not in str(gone)


@pytest.mark.parametrize(("method", "below", "body"), WAYS)
def test_another_tenant_gets_what_it_gets_for_an_id_that_never_existed(
    api: PublicApi, admin: Caller, place: Place, method: str, below: str, body: dict[str, Any] | None
) -> None:
    path, never = archived(api, new_tenant(admin), place), f"/allocations/{uuid4()}"
    other = new_tenant(admin)
    found, unknown = (problem(other.call(method, one + below, body), 404, "not_found") for one in (path, never))
    for document, one in ((found, path), (unknown, never)):
        document.pop("server_time")
        document["detail"] = document["detail"].replace(one.rpartition("/")[2], "ID")
        document.pop("operation_key", None)
    assert found == unknown


def test_an_operator_sees_the_segment_of_the_tenant_it_names(api: PublicApi, admin: Caller, place: Place) -> None:
    tenant, other = new_tenant(admin), new_tenant(admin)
    path = archived(api, tenant, place)
    gone = problem(admin.call("GET", path, tenant_id=tenant.tenant_id), 410, "archived")
    assert (gone["segment"], gone["destination"]) == (NAME, "/srv/archive")
    assert (
        problem(admin.call("GET", f"{path}/timeline", tenant_id=tenant.tenant_id), 410, "archived")["segment"] == NAME
    )
    problem(admin.call("GET", path, tenant_id=other.tenant_id), 404, "not_found")
    forced = admin.call("POST", f"/admin{path}/force-release", {"reason": "stuck"})
    assert problem(forced, 410, "archived")["segment"] == NAME
    assert problem(admin.call("GET", f"/admin{path}/devices"), 410, "archived")["segment"] == NAME


def test_an_allocation_of_an_earlier_archive_is_no_tenants(api: PublicApi, admin: Caller, place: Place) -> None:
    tenant = new_tenant(admin)
    path = archived(api, tenant, place, known=False, name=None)
    problem(tenant.call("GET", path), 404, "not_found")
    forced = problem(admin.call("POST", f"/admin{path}/force-release", {"reason": "stuck"}), 410, "archived")
    assert isinstance(forced["segment"], int)
