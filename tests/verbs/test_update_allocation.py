"""Changing the name and labels of an allocation: its event and timeline, refusals, and races with a release."""

from __future__ import annotations

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


def test_name_and_labels_change_once_per_key(api: PublicApi, admin: Caller, place: Place) -> None:
    tenant = new_tenant(admin)
    before = tenant.get(f"/allocations/{rent(tenant, place, name='old', labels={'a': '1'})['allocation_id']}")
    path, claim = f"/allocations/{before['allocation_id']}", claim_of(api, before["allocation_id"])
    key = fresh("update")
    answer = tenant.call("PATCH", path, {"name": "new"}, key=key)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {**before, "name": "new", "row_version": before["row_version"] + 1} == tenant.get(path)
    again = tenant.call("PATCH", path, {"name": "new"}, key=key)
    assert (again.json(), again.headers["idempotent-replayed"]) == (answer.json(), "true")
    problem(tenant.call("PATCH", path, {"name": "other"}, key=key), 422, "operation_conflict")

    labelled = tenant.call("PATCH", path, {"labels": {"b": "2"}}).json()
    assert (labelled["name"], labelled["labels"]) == ("new", {"b": "2"})
    assert tenant.call("PATCH", path, {"labels": {}}).json()["labels"] == {}
    same = tenant.call("PATCH", path, {"name": "new", "labels": {}}).json()
    assert same["row_version"] == before["row_version"] + 3, "equal values change nothing"

    written = updates_of(api, before["allocation_id"])
    assert [data["changed"] for _, data in written] == [["name"], ["labels"], ["labels"]]
    assert written[0][0] == key
    assert (written[1][1]["name"], written[1][1]["labels"]) == ("new", {"b": "2"})
    notes = [entry for entry in tenant.get(f"{path}/timeline")["items"] if entry["code"] == "updated"]
    assert [entry["detail"] for entry in notes] == ["changed: name", "changed: labels", "changed: labels"]
    assert {entry["actor"]["kind"] for entry in notes} == {"tenant"}
    assert claim_of(api, before["allocation_id"]) == claim, "the claim and its fence stay"
    audited = admin.every("/admin/audit", 500, subject=f"allocations/{before['allocation_id']}")
    assert {entry["tenant_id"] for entry in audited} == {tenant.tenant_id}, "no operator acted"


@pytest.mark.parametrize(
    "body",
    [
        {}, {"name": ""}, {"name": " "}, {"name": "x" * 101}, {"name": 7}, {"labels": {"a": "x" * 256}}, {"ends": "x"},
        {"labels": {f"k{n}": "v" for n in range(65)}}, {"labels": {"": "v"}}, {"name": None}, {"name": "x", "sku": "y"},
        {"labels": {"berth.fault/boot": "fail"}},
    ],
)  # fmt: skip
def test_bad_changes_are_refused(api: PublicApi, admin: Caller, place: Place, body: dict[str, Any]) -> None:
    tenant = new_tenant(admin)
    path = f"/allocations/{rent(tenant, place)['allocation_id']}"
    before = tenant.get(path)
    problem(tenant.call("PATCH", path, body), 422, "invalid")
    assert tenant.get(path) == before


def test_only_the_tenant_and_operators_on_the_record_change_it(api: PublicApi, admin: Caller, place: Place) -> None:
    tenant, other = new_tenant(admin), new_tenant(admin)
    allocation_id = rent(tenant, place)["allocation_id"]
    path = f"/allocations/{allocation_id}"
    problem(other.call("PATCH", path, {"name": "mine"}), 404, "not_found")
    problem(other.call("PATCH", path, {"name": "mine"}, tenant_id=tenant.tenant_id), 404, "not_found")
    problem(admin.call("PATCH", path, {"name": "mine"}), 403, "forbidden")
    problem(admin.call("PATCH", path, {"name": "mine"}, tenant_id=other.tenant_id), 404, "not_found")
    assert tenant.get(path)["name"] is None
    assert admin.call("PATCH", path, {"name": "ours"}, tenant_id=tenant.tenant_id).json()["name"] == "ours"
    updated = {"subject": f"allocations/{allocation_id}", "action": "allocation.update", "outcome": "ok"}
    (entry,) = admin.get("/admin/audit", **updated)["items"]
    assert (entry["action"], entry["detail"]["changed"]) == ("allocation.update", ["name"])


def test_a_final_record_does_not_change(api: PublicApi, admin: Caller, place: Place) -> None:
    tenant = new_tenant(admin)
    allocation_id = rent(tenant, place)["allocation_id"]
    path = f"/allocations/{allocation_id}"
    tenant.make(f"{path}/release")
    assert tenant.call("PATCH", path, {"name": "last"}).json()["status"] == "releasing"
    statement = {"runtime_verified_absent": True, "reason": "looked"}
    admin.make(f"/admin/allocations/{allocation_id}/force-cleanup", statement)
    before = tenant.get(path)
    refused = problem(tenant.call("PATCH", path, {"name": "later"}), 409, "invalid_state")
    assert (refused["state"], tenant.get(path)) == ("released", before)


def test_simultaneous_changes_and_a_release_all_count(api: PublicApi, admin: Caller, place: Place) -> None:
    tenant = new_tenant(admin)
    allocation_id = rent(tenant, place)["allocation_id"]
    path = f"/allocations/{allocation_id}"
    names = [f"name-{number}" for number in range(5)]
    changes = [partial(tenant.call, "PATCH", path, {"name": name}) for name in names]
    answers = at_once(*changes, partial(tenant.call, "POST", f"{path}/release"))
    assert [answer.status_code for answer in answers] == [200] * 5 + [202]
    after = tenant.get(path)
    assert (after["status"], after["name"] in names, after["row_version"]) == ("releasing", True, 7)
    written = updates_of(api, allocation_id)
    assert sorted(data["name"] for _, data in written) == names, "each has its event"
    assert written[-1][1]["name"] == after["name"]
