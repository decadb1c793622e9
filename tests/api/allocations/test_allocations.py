"""Reading and releasing allocations: the tenant's own, an operator's by name, none of another tenant."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from tests.api.calling import Caller, Place, new_tenant, problem, rent, ssh_key


def test_an_allocation_is_seen_with_its_timeline_and_released(admin: Caller, place: Place) -> None:
    tenant = new_tenant(admin)
    made = rent(tenant, place, name="mine", labels={"team": "red=blue"})
    seen = tenant.get(f"/allocations/{made['allocation_id']}")
    assert {name: seen[name] for name in made} == made
    assert (seen["tenant_id"], seen["node"], len(seen["slots"])) == (tenant.tenant_id, place.node["name"], 1)
    assert seen["waits"]["for"]
    holders = [slot["holder"] for slot in admin.get(f"/admin/nodes/{place.node['id']}")["slots"]]
    assert holders.count(made["allocation_id"]) == 1

    released = tenant.call("POST", f"/allocations/{made['allocation_id']}/release")
    assert (released.status_code, released.json()["status"]) == (202, "releasing")
    again = tenant.call("POST", f"/allocations/{made['allocation_id']}/release", {})
    assert (again.status_code, again.json()) == (202, released.json()), "repeating it is harmless"
    timeline = tenant.get(f"/allocations/{made['allocation_id']}/timeline")["items"]
    assert [(entry["from"], entry["to"]) for entry in timeline] == [(None, "requested"), ("requested", "releasing")]
    assert {entry["actor"]["kind"] for entry in timeline} == {"tenant"}


def test_operators_read_the_devices_of_a_guest(admin: Caller, place: Place) -> None:
    tenant = new_tenant(admin)
    made = rent(tenant, place)["allocation_id"]
    read = admin.get(f"/admin/allocations/{made}/devices")
    assert read == {
        "allocation_id": made, "status": "requested", "devices": None, "task_id": None, "read_at": None,
        "reason": "no guest of this allocation was started",
    }  # fmt: skip
    problem(tenant.call("GET", f"/admin/allocations/{made}/devices"), 403, "forbidden")
    problem(admin.call("GET", f"/admin/allocations/{uuid4()}/devices"), 404, "not_found")
    problem(admin.call("GET", "/admin/allocations/x/devices"), 422, "invalid")


def test_an_allocation_names_the_ssh_keys_that_it_was_created_with(admin: Caller, place: Place) -> None:
    tenant, other = new_tenant(admin), new_tenant(admin)
    lines = [ssh_key(), ssh_key()]
    kept, removed = (tenant.make("/ssh-keys", {"name": line[-40:], "public_key": line})["id"] for line in lines)
    tenant.make("/ssh-keys", {"name": "unused", "public_key": ssh_key()})
    other.make("/ssh-keys", {"name": "the same key", "public_key": lines[0]})
    made = rent(tenant, place, ssh_key_ids=[removed, kept])
    path = f"/allocations/{made['allocation_id']}"
    assert tenant.get(path)["ssh_key_ids"] == sorted([kept, removed])
    tenant.call("DELETE", f"/ssh-keys/{removed}")
    assert tenant.get(path)["ssh_key_ids"] == [kept]
    assert [item["ssh_key_ids"] for item in tenant.get("/allocations")["items"]] == [[kept]]
    assert admin.get(path, tenant_id=tenant.tenant_id)["ssh_key_ids"] == [kept], (
        "an operator sees no other tenant's either"
    )


def test_lists_page_and_filter_by_state_and_label(admin: Caller, place: Place) -> None:
    tenant = new_tenant(admin)
    ids = [rent(tenant, place, labels={"n": str(n), "team": "red=blue"})["allocation_id"] for n in range(5)]
    tenant.call("POST", f"/allocations/{ids[1]}/release")
    assert [item["allocation_id"] for item in tenant.every("/allocations", 2)] == ids
    assert [item["allocation_id"] for item in tenant.every("/allocations", 2, state="releasing")] == [ids[1]]
    assert [item["allocation_id"] for item in tenant.every("/allocations", 2, label="n=3")] == [ids[3]]
    assert len(tenant.every("/allocations", 2, label="team=red=blue")) == 5
    assert tenant.every("/allocations", 2, label="n=9") == []
    problem(tenant.call("GET", "/allocations", state="asleep"), 422, "invalid")
    problem(tenant.call("GET", "/allocations", label="novalue"), 422, "invalid")
    assert [item["allocation_id"] for item in admin.every("/admin/allocations", 2, tenant_id=tenant.tenant_id)] == ids


def test_operators_find_an_allocation_of_whichever_tenant(admin: Caller, place: Place) -> None:
    tenant = new_tenant(admin)
    path = f"/allocations/{rent(tenant, place)['allocation_id']}"
    assert admin.get(f"/admin{path}") == tenant.get(path)
    problem(tenant.call("GET", f"/admin{path}"), 403, "forbidden")
    problem(admin.call("GET", f"/admin/allocations/{uuid4()}"), 404, "not_found")
    problem(admin.call("GET", "/admin/allocations/x"), 422, "invalid")


def test_a_timeline_pages_oldest_first(admin: Caller, place: Place) -> None:
    tenant = new_tenant(admin)
    path = f"/allocations/{rent(tenant, place)['allocation_id']}"
    tenant.make(f"{path}/release")
    assert [entry["to"] for entry in tenant.every(f"{path}/timeline", 1)] == ["requested", "releasing"]
    problem(tenant.call("GET", f"{path}/timeline", limit=1001), 422, "invalid")


def test_another_tenants_allocation_is_not_found_and_not_touched(admin: Caller, place: Place) -> None:
    owner, other = new_tenant(admin), new_tenant(admin)
    path = f"/allocations/{rent(owner, place)['allocation_id']}"
    for method, suffix in (("GET", ""), ("GET", "/timeline"), ("POST", "/release")):
        problem(other.call(method, path + suffix), 404, "not_found")
        problem(other.call(method, path + suffix, tenant_id=owner.tenant_id), 404, "not_found")
    problem(other.call("GET", "/allocations", tenant_id=owner.tenant_id), 404, "not_found")
    assert other.get("/allocations")["items"] == []
    assert owner.get(path)["status"] == "requested"
    assert len(owner.get("/allocations", tenant_id=owner.tenant_id)["items"]) == 1


def test_an_operator_names_the_tenant_whose_allocations_it_means(admin: Caller, place: Place) -> None:
    tenant, other = new_tenant(admin), new_tenant(admin)
    path = f"/allocations/{rent(tenant, place)['allocation_id']}"
    problem(admin.call("GET", path), 403, "forbidden")
    problem(admin.call("GET", path, tenant_id=other.tenant_id), 404, "not_found")
    assert admin.get(path, tenant_id=tenant.tenant_id)["status"] == "requested"
    assert admin.call("POST", f"{path}/release", tenant_id=tenant.tenant_id).json()["status"] == "releasing"
    (entry,) = [e for e in admin.get(f"{path}/timeline", tenant_id=tenant.tenant_id)["items"] if e["to"] == "releasing"]
    assert entry["actor"]["kind"] == "admin"


def test_an_operator_releases_by_force_on_the_record(admin: Caller, place: Place) -> None:
    allocation = rent(new_tenant(admin), place)
    path = f"/admin/allocations/{allocation['allocation_id']}/force-release"
    problem(admin.call("POST", path, {}), 422, "invalid")
    answer = admin.call("POST", path, {"reason": "stuck\nfor hours"})
    assert (answer.status_code, answer.json()["status"]) == (202, "releasing")
    audited = {"subject": f"allocations/{allocation['allocation_id']}", "action": "allocation.force_release"}
    entries = {entry["status"]: entry for entry in admin.every("/admin/audit", 10, **audited)}
    assert entries.keys() == {422, 202}
    assert entries[422]["code"] == "invalid"
    entry = entries[202]
    assert (entry["action"], entry["detail"]["reason"]) == ("allocation.force_release", "stuck\nfor hours")


def test_what_cannot_be_rented_is_said_with_its_reason(admin: Caller, place: Place) -> None:
    tenant = new_tenant(admin, gpus_limit=1)
    key = tenant.make("/ssh-keys", {"name": "key", "public_key": ssh_key()})
    body = {"sku": place.sku, "gpus": 1, "region": place.region, "ssh_key_ids": [key["id"]]}

    def refused(code: str, status: int = 409, **members: Any) -> dict[str, Any]:
        return problem(tenant.call("POST", "/allocations", {**body, **members}), status, code)

    assert refused("sku_unavailable", sku="no-such-sku")["reason"] == "unknown_sku"
    assert refused("sku_unavailable", gpus=3)["reason"] == "count_not_allowed"
    assert refused("sku_unavailable", region="nowhere")["reason"] == "none_in_region"
    refused("quota_exceeded", gpus=2)
    refused("ssh_key_not_found", 422, ssh_key_ids=[new_tenant(admin).tenant_id])
    refused("image_unavailable", 422, image="no-image")
    mistakes: list[dict[str, Any]] = [
        {"gpus": "1"},
        {"gpus": 2**31},
        {"ssh_key_ids": []},
        {"ssh_key_ids": ["x"]},
        {"labels": {"a b": "c"}},
        {"labels": {"a": "\x00"}},
        {"user_data": "\x00"},
        {"name": ""},
        {"colour": "blue"},
    ]
    for wrong in mistakes:
        refused("invalid", 422, **wrong)
    problem(admin.call("POST", "/allocations", body), 403, "forbidden")
