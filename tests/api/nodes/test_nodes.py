"""Nodes: how they are registered, steered and shown."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.api.calling import GPU_MODEL, Caller, at_once, enrol, fresh, new_node, new_region, problem
from tests.support.public_api import PublicApi
from tests.support.waiting import wait_for


def events_of(api: PublicApi, node: Any) -> list[Any]:
    """The events of a node, in order."""
    rows = api.database.execute(
        "select event_type from outbox where subject = %s order by id", (f"nodes/{node['id']}",)
    )
    return [row[0] for row in rows.fetchall()]


def test_a_node_is_registered_with_slots_of_its_own(api: PublicApi, admin: Caller) -> None:
    node = new_node(admin, new_region(admin), slot_count=5, faults={"boot": "fail"}, address="10.0.0.7")
    assert (node["state"], node["online"], node["free_slots"], node["half_slots"]) == ("registered", False, 5, 3)
    assert [slot["index"] for slot in node["slots"]] == [0, 1, 2, 3, 4]
    assert [slot["numa_half"] for slot in node["slots"]] == [0, 0, 0, 1, 1]
    first = node["slots"][0]["unit"]
    assert [slot["unit"] for slot in node["slots"]] == list(range(first, first + 5))
    row = api.database.execute(
        "select free_mask, fit_class, unit_base from nodes where id = %s", (node["id"],)
    ).fetchone()
    assert row == (0b11111, 3 * 64 + 2, first)
    assert admin.get(f"/admin/nodes/{node['id']}") == node == admin.get(f"/admin/nodes/{node['name']}")
    assert (node["faults"], node["address"]) == ({"boot": "fail"}, "10.0.0.7")
    assert events_of(api, node) == ["node.registered"]
    assert new_node(admin, node["region"])["address"] is None, "nothing is assumed"


@pytest.mark.parametrize(("slot_count", "half_slots", "expected"), [(1, None, 1), (62, None, 31), (8, 8, 8), (8, 2, 2)])
def test_halves_are_half_unless_stated(admin: Caller, slot_count: int, half_slots: int | None, expected: int) -> None:
    members = {} if half_slots is None else {"half_slots": half_slots}
    node = new_node(admin, new_region(admin), slot_count=slot_count, **members)
    assert node["half_slots"] == expected
    assert sum(slot["numa_half"] == 0 for slot in node["slots"]) == expected
    assert node["free_slots"] == slot_count


def test_nodes_registered_at_once_never_share_a_unit(admin: Caller) -> None:
    region = new_region(admin)
    nodes = at_once(*[lambda: new_node(admin, region, slot_count=7)] * 8)
    for node in nodes:
        units = [slot["unit"] for slot in node["slots"]]
        assert units == list(range(units[0], units[0] + 7))
    assert len({slot["unit"] for node in nodes for slot in node["slots"]}) == 8 * 7


def test_unit_numbers_are_taken_by_one_transaction_at_a_time(api: PublicApi, admin: Caller) -> None:
    region = new_region(admin)
    waiting = "select exists (select from pg_locks where locktype = 'advisory' and not granted)"
    with ThreadPoolExecutor(1) as pool:
        with api.database.transaction():
            api.database.execute("select pg_advisory_xact_lock('unit_numbers'::regclass::oid::bigint)")
            node = pool.submit(new_node, admin, region)
            wait_for(lambda: node.done() or api.database.execute(waiting).fetchone() == (True,), "the taker to wait")
            assert not node.done(), "it took unit numbers while another transaction was taking some"
        assert len(node.result()["slots"]) == 8


def test_of_simultaneous_registrations_of_one_name_exactly_one_succeeds(api: PublicApi, admin: Caller) -> None:
    body = {
        "name": fresh("node"),
        "region": new_region(admin),
        "gpu_model": fresh("GPU"),
        "shape": "gpu_slice",
        "slot_count": 2,
    }
    answers = at_once(*[lambda: admin.call("POST", "/admin/nodes", body)] * 6)
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 5
    pools = api.database.execute("select count(*) from pools where gpu_model = %s", (body["gpu_model"],)).fetchone()
    assert pools == (1,)


def test_a_node_must_make_sense(admin: Caller) -> None:
    region = new_region(admin)
    body = {"name": fresh("node"), "region": region, "gpu_model": GPU_MODEL, "shape": "gpu_slice", "slot_count": 8}
    for wrong in (
        {"slot_count": 0},
        {"slot_count": 63},
        {"slot_count": 2**70},
        {"half_slots": 0},
        {"half_slots": 9},
        {"name": "Upper"},
        {"name": "with space"},
        {"shape": "cube"},
        {"faults": {"boot": 1}},
        {"faults": {"boot": "\x00"}},
        {"address": ""},
    ):
        problem(admin.call("POST", "/admin/nodes", {**body, **wrong}), 422, "invalid")
    problem(admin.call("POST", "/admin/nodes", {**body, "region": "nowhere"}), 404, "not_found")
    made = admin.make("/admin/nodes", body)
    assert problem(admin.call("POST", "/admin/nodes", body), 409, "already_exists")["existing_id"] == made["id"]


def test_a_node_is_cordoned_drained_and_put_back(api: PublicApi, admin: Caller) -> None:
    node = new_node(admin, new_region(admin))
    path = f"/admin/nodes/{node['id']}"
    for verb in ("cordon", "uncordon", "drain"):
        document = problem(admin.call("POST", f"{path}/{verb}"), 409, "invalid_state")
        assert document["state"] == "registered"
    assert enrol(admin, node["id"]).status_code == 200

    cordoned = admin.make(f"{path}/cordon")
    assert cordoned["state"] == "cordoned"
    assert admin.make(f"{path}/cordon", {}) == cordoned, "repeating it changes nothing"
    draining = admin.make(f"{path}/drain")
    assert (draining["state"], draining["drained"]) == ("draining", True)
    assert admin.make(f"{path}/cordon")["state"] == "draining"
    back = admin.make(f"{path}/uncordon")
    assert (back["state"], back["drained"]) == ("active", False)
    assert back["row_version"] > draining["row_version"] > cordoned["row_version"]
    assert events_of(api, node) == [
        "node.registered", "node.enrolled", "node.certificate_issued", "node.cordoned", "node.draining", "node.uncordoned",
    ]  # fmt: skip
    actions = [entry["action"] for entry in admin.every("/admin/audit", 500, subject=f"nodes/{node['id']}")]
    assert actions[-5:] == ["node.cordon", "node.cordon", "node.drain", "node.cordon", "node.uncordon"]


def test_a_node_is_drained_only_when_no_claim_is_left(api: PublicApi, admin: Caller) -> None:
    node = new_node(admin, new_region(admin))
    enrol(admin, node["id"])
    owner, unit = uuid.uuid4(), node["slots"][3]["unit"]
    api.database.execute(
        "insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, occupied, occupied_from, fence)"
        " values (%s, %s, 'allocation', %s, int8multirange(int8range(%s, %s)), tstzrange(now(), null), true, now(), 1)",
        (node["id"], uuid.uuid4(), owner, unit, unit + 1),
    )
    draining = admin.make(f"/admin/nodes/{node['id']}/drain")
    assert draining["drained"] is False
    assert [slot["holder"] for slot in draining["slots"]] == [None] * 3 + [str(owner)] + [None] * 4
    api.database.execute(
        "update claims set booked = false, occupied = false, closed_at = now() where owner_id = %s", (owner,)
    )
    freed = admin.get(f"/admin/nodes/{node['id']}")
    assert freed["drained"] is True
    assert {slot["holder"] for slot in freed["slots"]} == {None}


def test_the_fleet_is_listed_by_page_state_and_region(admin: Caller) -> None:
    region = new_region(admin)
    nodes = [new_node(admin, region) for _ in range(5)]
    enrol(admin, nodes[0]["id"])
    listed = admin.every("/admin/nodes", 2, region=region)
    assert [node["id"] for node in listed] == [node["id"] for node in nodes]
    assert all("slots" not in node for node in listed)
    assert [node["id"] for node in admin.every("/admin/nodes", 2, region=region, state="active")] == [nodes[0]["id"]]
    assert len(admin.every("/admin/nodes", 2, region=region, state="registered")) == 4
    problem(admin.call("GET", "/admin/nodes", state="sleeping"), 422, "invalid")
