"""Extending and shortening an allocation over HTTP: null is not absence, refusals name what is in the way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from tests.api.calling import Caller, Place, at_once, fresh, new_place, new_tenant, problem, rent
from tests.support.public_api import PublicApi
from tests.verbs.updates import claim_of, updates_of


@pytest.fixture
def place(api: PublicApi, admin: Caller) -> Place:
    """Eight GPUs, free."""
    return new_place(admin, api.database)


def moment(seconds: float) -> str:
    """A time so far from now, as responses write it."""
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def test_null_removes_the_end_and_absence_leaves_it(api: PublicApi, admin: Caller, place: Place) -> None:
    tenant, end = new_tenant(admin), moment(600)
    made = rent(tenant, place, ends_at=end)["allocation_id"]
    path = f"/allocations/{made}"
    assert tenant.call("PATCH", path, {"name": "n"}).json()["ends_at"] == end
    opened = tenant.call("PATCH", path, {"ends_at": None})
    assert (opened.status_code, opened.json()["ends_at"], tenant.get(path)["ends_at"]) == (200, None, None)
    later = moment(7_200)
    assert tenant.call("PATCH", path, {"ends_at": later, "labels": {"a": "b"}}).json() == tenant.get(path)
    assert tenant.get(path)["ends_at"] == later
    written = [data for _, data in updates_of(api, made)]
    assert [(data["changed"], data["ends_at"]) for data in written] == [
        (["name"], end), (["ends_at"], None), (["labels", "ends_at"], later),
    ]  # fmt: skip
    assert len(claim_of(api, made)) == 3
    audited = admin.every("/admin/audit", 500, subject=f"allocations/{made}")
    assert {entry["tenant_id"] for entry in audited} == {tenant.tenant_id}, "no operator acted"


def test_a_key_that_said_nothing_of_the_end_is_not_answered_for_null(
    api: PublicApi, admin: Caller, place: Place
) -> None:
    tenant, key = new_tenant(admin), fresh("update")
    path = f"/allocations/{rent(tenant, place, ends_at=moment(600))['allocation_id']}"
    answer = tenant.call("PATCH", path, {"name": "n"}, key=key)
    problem(tenant.call("PATCH", path, {"name": "n", "ends_at": None}, key=key), 422, "operation_conflict")
    problem(tenant.call("PATCH", path, {"name": "n", "ends_at": moment(60)}, key=key), 422, "operation_conflict")
    assert tenant.call("PATCH", path, {"name": "n", "labels": None}, key=key).json() == answer.json()
    other = fresh("update")
    opened = tenant.call("PATCH", path, {"ends_at": None}, key=other)
    again = tenant.call("PATCH", path, {"ends_at": None}, key=other)
    assert (again.json(), again.headers["idempotent-replayed"]) == (opened.json(), "true")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"ends_at": "tomorrow"}, "invalid"), ({"ends_at": 7}, "invalid"), ({"ends_at": "2030-01-02T03:04:05"}, "invalid"),
        ({"ends_at": ""}, "invalid"), ({"ends_at": "2000-01-01T00:00:00Z"}, "window_invalid"),
        ({"ends_at": "9999-12-31T23:59:59Z"}, "window_invalid"), ({"ends_at": "0001-01-01T00:00:00+14:00"}, "window_invalid"),
        ({"name": "n", "ends_at": "2000-01-01T00:00:00Z"}, "window_invalid"),
    ],
)  # fmt: skip
def test_bad_ends_are_refused(api: PublicApi, admin: Caller, place: Place, body: dict[str, Any], code: str) -> None:
    tenant = new_tenant(admin)
    path = f"/allocations/{rent(tenant, place, ends_at=moment(600))['allocation_id']}"
    before = tenant.get(path)
    problem(tenant.call("PATCH", path, body), 422, code)
    assert tenant.get(path) == before


def test_an_operator_changes_it_on_the_record(api: PublicApi, admin: Caller, place: Place) -> None:
    tenant, other = new_tenant(admin), new_tenant(admin)
    made, end = rent(tenant, place)["allocation_id"], moment(900)
    path = f"/allocations/{made}"
    problem(other.call("PATCH", path, {"ends_at": end}), 404, "not_found")
    problem(other.call("PATCH", path, {"ends_at": end}, tenant_id=tenant.tenant_id), 404, "not_found")
    problem(admin.call("PATCH", path, {"ends_at": end}, tenant_id=other.tenant_id), 404, "not_found")
    assert len(claim_of(api, made)) == 1
    answer = admin.call("PATCH", path, {"ends_at": end}, tenant_id=tenant.tenant_id)
    assert (answer.status_code, answer.json()["ends_at"]) == (200, end)
    updated = {"subject": f"allocations/{made}", "action": "allocation.update", "outcome": "ok"}
    (entry,) = [one for one in admin.get("/admin/audit", **updated)["items"] if one["tenant_id"] is None]
    assert (entry["action"], entry["detail"]["changed"], entry["detail"]["ends_at"]) == (
        "allocation.update", ["ends_at"], end,
    )  # fmt: skip
    ((_, data),) = updates_of(api, made)
    assert data["actor_kind"] == "admin"


def test_a_window_after_it_refuses_and_says_whose(api: PublicApi, admin: Caller, place: Place) -> None:
    tenant, other = new_tenant(admin), new_tenant(admin)
    made = tenant.get(f"/allocations/{rent(tenant, place, ends_at=moment(600))['allocation_id']}")
    path, slot = f"/allocations/{made['allocation_id']}", f"slot:{place.node['id']}:{made['slots'][0]}"
    held = {}
    for owner, (begins, over) in {tenant: (900, 1_000), other: (1_000, 1_100)}.items():
        body = {"holder_id": "h", "resources": [slot], "starts_at": moment(begins), "ends_at": moment(over)}
        held[owner] = owner.make("/reservations", body)["reservation_id"]
    for caller in (tenant, admin):
        refused = problem(
            caller.call("PATCH", path, {"ends_at": None}, tenant_id=tenant.tenant_id), 409, "resource_busy"
        )
        assert refused["conflicts"] == [f"reservations/{held[tenant]}"]
    assert tenant.get(path) == made
    tenant.make(f"/reservations/{held[tenant]}/cancel", {"holder_id": "h"})
    refused = problem(tenant.call("PATCH", path, {"ends_at": None}), 409, "resource_busy")
    assert refused["conflicts"] == [], "nothing of another tenant is disclosed"
    assert tenant.call("PATCH", path, {"ends_at": moment(950)}).status_code == 200


def test_simultaneous_ends_and_a_release_all_count(api: PublicApi, admin: Caller, place: Place) -> None:
    tenant = new_tenant(admin)
    made = rent(tenant, place, ends_at=moment(600))["allocation_id"]
    path = f"/allocations/{made}"
    changes = [partial(tenant.call, "PATCH", path, {"ends_at": moment(seconds)}) for seconds in (700, 800, 900, 1_000)]
    *changed, released = at_once(*changes, partial(tenant.call, "POST", f"{path}/release"))
    assert released.status_code == 202
    done = [answer for answer in changed if answer.status_code == 200]
    assert all(answer.json()["code"] == "invalid_state" for answer in changed if answer not in done)
    claims = claim_of(api, made)
    assert len(claims) == len(done) + 1 == len(updates_of(api, made)) + 1
    assert tenant.get(path)["status"] == "releasing"
