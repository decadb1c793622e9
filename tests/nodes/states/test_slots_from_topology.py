"""A node registered without slots has none until its topology is approved, which makes one for each GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.nodes.states import NodeState
from orchestrator.nodes.topology.rules import Profile, equals_profile, misfit
from orchestrator.verification.derived import check_fit
from orchestrator.verification.verdict import Bounds
from tests.api.calling import Caller, Place, enrol, fresh, new_node, problem, rent
from tests.discovery.topologies import gpu, topology
from tests.maintenance.windows import body, rows
from tests.support.public_api import PublicApi

_FOUND = """
insert into node_topologies (node_id, task_id, epoch, next_at, found, found_digest, found_at)
values (%s, gen_random_uuid(), 1, now(), %s::jsonb, %s, now())
on conflict (node_id) do update set found = excluded.found, found_digest = excluded.found_digest
"""
_ORPHAN = """
insert into node_orphans (node_id, allocation_id, slots, fence, waits_for, waits_since)
values (%s, gen_random_uuid(), '{}', 7, 'operator', now()) returning id
"""


def found(api: PublicApi, node: Any, **changes: Any) -> str:
    """The node was discovered; the digest of its topology."""
    seen = topology(**changes)
    api.database.execute(_FOUND, (node["id"], seen.canonical().decode(), seen.digest()))
    return seen.digest()


def without_slots(api: PublicApi, place: Place) -> Any:
    """A node without slots in the pool of the place, enrolled and online."""
    node = new_node(api.admin, place.region, slot_count=None, slots_from_topology=True)
    assert (node["slot_count"], node["half_slots"], node["slots"], node["state"]) == (0, 0, [], "registered")
    enrol(api.admin, node["id"], f"machine-of-{node['name']}")
    api.database.execute("update nodes set online = true where id = %s", (node["id"],))
    return node


def shown(api: PublicApi, node: Any) -> Any:
    return api.admin.get(f"/admin/nodes/{node['id']}")


def test_the_approval_of_its_topology_makes_its_slots(api: PublicApi, tenant: Caller, place: Place) -> None:
    node = without_slots(api, place)
    api.admin.make(f"/admin/nodes/{place.node['id']}/cordon")
    assert shown(api, node)["state"] == "enrolling"
    digest = found(api, node)
    assert (shown(api, node)["state"], shown(api, node)["free_slots"]) == ("discovered", 0)
    for state in ("discovered", "enrolling", "active"):
        listed = [one["id"] for one in api.admin.every("/admin/nodes", 100, state=state, region=place.region)]
        assert (node["id"] in listed) is (state == "discovered")
    refused = tenant.call(
        "POST", "/allocations", {"sku": place.sku, "gpus": 1, "region": place.region, "ssh_key_ids": []}
    )
    assert refused.status_code in (409, 422)
    for _ in range(2):
        api.admin.make(f"/admin/nodes/{node['id']}/approve", {"digest": digest})
    now = shown(api, node)
    assert (now["state"], now["slot_count"], now["half_slots"], now["free_slots"]) == ("active", 8, 4, 8)
    assert [(slot["index"], slot["numa_half"], slot["state"]) for slot in now["slots"]] == [
        (index, index // 4, "free") for index in range(8)
    ]
    units = [slot["unit"] for slot in now["slots"]]
    assert units == list(range(units[0], units[0] + 8))
    ((payload,),) = rows(
        api, "select payload from outbox where event_type = 'node.updated' and subject = %s", f"nodes/{node['id']}"
    )
    assert (payload["changed"], payload["slot_count"], payload["half_slots"]) == (["half_slots", "slot_count"], 8, 4)
    ((placed,),) = rows(
        api, "select node_id::text from claims where owner_id = %s", rent(tenant, place)["allocation_id"]
    )
    assert placed == node["id"]
    assert check_fit(api.database, Bounds()).kept


def test_no_slot_with_an_orphan_is_placeable_after_the_approval(api: PublicApi, tenant: Caller, place: Place) -> None:
    """The reconciler could not say on which slots it is, so that it may be on each of them."""
    node = without_slots(api, place)
    path = f"/admin/nodes/{node['id']}"
    ((orphan,),) = rows(api, _ORPHAN, node["id"])
    refused = api.admin.call("POST", f"{path}/orphans/{orphan}/destroy", {"reason": "unknown"})
    assert "approve its topology" in problem(refused, 409, "invalid_state")["detail"]
    digest = found(api, node)
    for _ in range(2):
        api.admin.make(f"{path}/approve", {"digest": digest})
    now = shown(api, node)
    assert (now["state"], now["free_slots"], now["slot_count"]) == ("quarantined", 0, 8)
    assert {slot["reason"] for slot in now["slots"]} == {"an orphan is on it; see berth node orphans"}
    (listed,) = api.admin.get(f"{path}/orphans")["items"]
    assert listed["slots"] == list(range(8))
    api.admin.make(f"/admin/nodes/{place.node['id']}/cordon")
    wanted = {"sku": place.sku, "gpus": 1, "region": place.region, "ssh_key_ids": []}
    assert tenant.call("POST", "/allocations", wanted).status_code in (409, 422)
    assert check_fit(api.database, Bounds()).kept
    assert api.admin.call("POST", f"{path}/orphans/{orphan}/destroy", {"reason": "unknown"}).status_code == 202


def test_five_gpus_without_halves_are_five_slots(api: PublicApi, place: Place) -> None:
    node = without_slots(api, place)
    digest = found(api, node, gpus=[gpu(index).model_copy(update={"numa_node": None}) for index in range(5)])
    api.admin.make(f"/admin/nodes/{node['id']}/approve", {"digest": digest})
    now = shown(api, node)
    assert (now["slot_count"], now["half_slots"]) == (5, 3)


@pytest.mark.parametrize("gpus", [[], None], ids=["none", "unread"])
def test_a_topology_without_gpus_is_not_approved(api: PublicApi, place: Place, gpus: Any) -> None:
    node = without_slots(api, place)
    digest = found(api, node, gpus=gpus)
    problem(api.admin.call("POST", f"/admin/nodes/{node['id']}/approve", {"digest": digest}), 409, "topology_misfit")
    assert shown(api, node)["state"] == "discovered"


def test_what_a_node_without_slots_takes(api: PublicApi, tenant: Caller, place: Place) -> None:
    node = without_slots(api, place)
    path, name = f"/admin/nodes/{node['id']}", f"node:{node['id']}"
    problem(api.admin.call("POST", "/admin/maintenance", body(place, resources=[name])), 404, "resource_not_found")
    window = {"starts_at": body(place)["starts_at"], "ends_at": body(place)["ends_at"], "ttl_seconds": 60}
    held = tenant.call("POST", "/reservations", {"holder_id": "h", "resources": [name], **window})
    problem(held, 404, "resource_not_found")
    assert tenant.call("GET", f"/resources/{name}").status_code == 404
    problem(api.admin.call("POST", f"{path}/burn-in", {}), 409, "invalid_state")
    problem(api.admin.call("POST", f"{path}/gpu-reset", {"slot": 0}), 404, "not_found")
    problem(api.admin.call("PATCH", path, {"half_slots": 1}), 422, "invalid")
    assert api.admin.make(f"{path}/drain")["drained"] is True
    assert api.admin.make(f"{path}/uncordon")["state"] == "enrolling"
    api.admin.make(f"{path}/cordon")
    digest = found(api, node)
    api.admin.make(f"{path}/approve", {"digest": digest})
    now = shown(api, node)
    assert (now["state"], now["slot_count"]) == (NodeState.CORDONED, 8)
    (offered,) = tenant.get("/availability", sku=place.sku, region=place.region)["items"]
    assert offered["free_gpus"] == 8, "the other node's"


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"slot_count": 8, "slots_from_topology": True},
        {"slots_from_topology": True, "half_slots": 4},
        {"slot_count": None},
    ],
    ids=json.dumps,
)
def test_a_count_or_the_topology_not_both(api: PublicApi, place: Place, members: dict[str, Any]) -> None:
    wanted = {"name": fresh("node"), "region": place.region, "gpu_model": "H200", "shape": "gpu_slice"}
    refused = api.admin.call("POST", "/admin/nodes", {**wanted, **members})
    assert "slot_count" in problem(refused, 422, "invalid")["detail"]


def test_the_worker_approves_no_topology_of_a_node_without_slots() -> None:
    assert misfit(topology(), 0) is None
    assert equals_profile(topology(), Profile("H200", 8, 4))
    without_halves = topology(gpus=[gpu(index, numa_node=None) for index in range(8)])
    assert equals_profile(without_halves, Profile("H200", 8, 4))
    assert not equals_profile(without_halves, Profile("H200", 0, 0))
