"""VLANs that were left: another network has one once no node may carry it."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from berth.cli.deployment.restore.gate import awaited_nodes
from berth.cli.deployment.restore.machines import machine_finding
from orchestrator.allocations.outcomes import Begun
from orchestrator.nodes.inventory_queries import count_awaited_inventories
from orchestrator.operations.execution import Context
from orchestrator.tenants.commands.tenants import delete_tenant
from tests.allocations.driving import (
    ADMIN,
    allocation_of,
    operation,
    rows_of,
    run_with,
)
from tests.allocations.seeding import connect
from tests.networks.leasing import (
    BY_VLAN,
    BY_VXLAN,
    TWO,
    VLANS,
    add_orphan,
    begin,
    fleet,
    leave,
    order_of,
    others,
    restore,
    vlan_of,
    why_full,
)
from worker.sweepers.retention import sweep_left_vlans


def test_a_vlan_that_was_left_is_another_networks_after_the_quarantine(database_url: str) -> None:
    seeded = fleet(database_url)
    second, third = others(database_url, seeded, "second", "third")
    first, _ = begin(database_url, seeded)
    stays, _ = begin(database_url, seeded)
    begin(database_url, second)
    leave(database_url, seeded, first)
    assert "2 are used, 0 were left" in why_full(database_url, third), "one guest of it stays"
    leave(database_url, seeded, stays)
    assert "1 are used, 1 were left" in why_full(database_url, third, replace(TWO, vlan_quarantine_seconds=3_600.0))
    assert vlan_of(database_url, third) == 100
    assert "2 are used, 0 were left" in why_full(database_url, seeded)


def test_the_same_network_has_its_vlan_again_at_once(database_url: str) -> None:
    seeded = fleet(database_url)
    slow = replace(TWO, vlan_quarantine_seconds=3_600.0)
    first, _ = begin(database_url, seeded, slow)
    leave(database_url, seeded, first)
    assert rows_of(database_url, VLANS) == [("north", 100, False)]
    assert vlan_of(database_url, seeded, slow) == 100
    assert rows_of(database_url, VLANS) == [("north", 100, True)]


def test_a_vlan_stays_leased_until_each_node_has_sent_an_inventory(database_url: str) -> None:
    seeded = fleet(database_url, 2)
    second, third = others(database_url, seeded, "second", "third")
    first, _ = begin(database_url, seeded)
    begin(database_url, second)
    leave(database_url, seeded, first)
    silent = seeded.nodes[1].id
    with connect(database_url) as connection:
        connection.execute(
            "update nodes set inventory_after = inventory_after - interval '1 hour' where id = %s", (silent,)
        )
    assert "1 were left and are in quarantine or on a node whose inventory is older" in why_full(database_url, third)
    with connect(database_url) as connection:
        connection.execute("update nodes set state = 'retired' where id = %s", (silent,))
    assert vlan_of(database_url, third) == 100


HELD = {"an orphan": None, "a guest of a claim that is closed": "ended", "a guest of no allocation": "unknown"}


@pytest.mark.parametrize("held", HELD)
def test_no_vlan_is_leased_while_a_node_has_guests_that_nothing_explains(database_url: str, held: str) -> None:
    """The node was away, has restarted what it records, and is seen again."""
    seeded = fleet(database_url, 2)
    second, third = others(database_url, seeded, "second", "third")
    first, _ = begin(database_url, seeded)
    leave(database_url, seeded, first)
    away = (
        seeded.nodes[1].id
        if held != "a guest of a claim that is closed"
        else allocation_of(database_url, first)["node_id"]
    )
    found = first if HELD[held] == "ended" else uuid.uuid4()
    if HELD[held] is None:
        add_orphan(database_url, away, found)
    else:
        with connect(database_url) as connection:
            connection.execute(
                "update nodes set inventory = jsonb_build_array(jsonb_build_object('allocation_id', %s::text, 'slots',"
                " '[0]'::jsonb, 'fence', 1)) where id = %s",
                (found, away),
            )
    only = replace(TWO, vlans=(100,))
    for limits in (TWO, only):
        assert "has guests that nothing explains" in why_full(database_url, third, limits)
    assert rows_of(database_url, VLANS) == [("north", 100, False)], "still the first network's"
    with connect(database_url) as connection:
        connection.execute("delete from node_orphans")
        connection.execute("update nodes set inventory = '[]'")
    assert vlan_of(database_url, second, only) == 100


def test_no_vlan_is_leased_before_a_node_has_sent_an_inventory(database_url: str) -> None:
    seeded = fleet(database_url)
    with connect(database_url) as connection:
        connection.execute("update nodes set inventory = null, inventory_after = null")
    assert "has sent no inventory" in why_full(database_url, seeded)


def test_what_a_worker_of_the_version_before_left_begins_its_quarantine_when_it_is_found(database_url: str) -> None:
    seeded = fleet(database_url)
    second, third = others(database_url, seeded, "second", "third")
    first, _ = begin(database_url, seeded)
    begin(database_url, second)
    leave(database_url, seeded, first)
    with connect(database_url) as connection:
        connection.execute("update network_vlans set left_at = null")
    assert "1 were left" in why_full(database_url, third, replace(TWO, vlan_quarantine_seconds=3_600.0))
    found = rows_of(database_url, VLANS)
    assert found in ([("north", 100, True), ("north", 101, True)], [("north", 100, False), ("north", 101, True)])


def test_a_deleted_tenant_leaves_its_vlan_in_quarantine(database_url: str) -> None:
    seeded = fleet(database_url)
    (other,) = others(database_url, seeded, "other")
    one = replace(TWO, vlans=(100,), vlan_quarantine_seconds=3_600.0)
    first, _ = begin(database_url, seeded, one)
    leave(database_url, seeded, first)

    async def work(context: Context) -> None:
        await delete_tenant(context, operation(seeded), ADMIN, seeded.tenant_id)

    run_with(database_url, work)
    assert rows_of(database_url, "select id from networks") == []
    assert rows_of(database_url, VLANS) == [("north", 100, False)]
    assert "1 were left" in why_full(database_url, other, one)


def test_after_a_restore_a_vlan_that_was_left_may_be_another_networks(database_url: str) -> None:
    """In the interval that is lost."""
    seeded = fleet(database_url, 2)
    first, _ = begin(database_url, seeded)
    leave(database_url, seeded, first)
    away = seeded.nodes[1].id
    add_orphan(database_url, away, uuid.uuid4())
    second, _ = begin(database_url, seeded)
    assert order_of(database_url, second).vlan == 100, "without a restore it was nothing else's"
    leave(database_url, seeded, second)
    restore(database_url, away)
    assert "is awaited since the restore" in why_full(database_url, seeded)
    with connect(database_url) as connection:
        connection.execute("delete from awaited_inventories")
    assert "has guests that nothing explains" in why_full(database_url, seeded)
    with connect(database_url) as connection:
        connection.execute("delete from node_orphans")
        connection.execute(
            "update nodes set inventory = jsonb_build_array(jsonb_build_object('allocation_id', uuidv7())) where id = %s",
            (away,),
        )
    assert "has guests that nothing explains" in why_full(database_url, seeded), "not reported yet"
    assert rows_of(database_url, VLANS) == [("north", 100, False)]
    with connect(database_url) as connection:
        connection.execute("update nodes set inventory = '[]'")
    assert vlan_of(database_url, seeded) == 100
    assert rows_of(database_url, VLANS) == [("north", 100, True)]


def test_a_guest_without_vlans_keeps_none_in_use(database_url: str) -> None:
    """Or the next on a node with VLANs would have one that was never known to be free."""
    seeded = fleet(database_url, 2)
    first, _ = begin(database_url, seeded)
    leave(database_url, seeded, first)
    restore(database_url, seeded.nodes[1].id)
    with connect(database_url) as connection:
        connection.execute("update nodes set agent_features = %s", (BY_VXLAN,))
    other, begun = begin(database_url, seeded)
    assert isinstance(begun, Begun)
    on = allocation_of(database_url, other)["node_id"]
    assert rows_of(database_url, VLANS) == [("north", 100, False)]
    with connect(database_url) as connection:
        connection.execute("update nodes set agent_features = %s where id <> %s", (BY_VLAN, on))
        connection.execute("delete from awaited_inventories")
        connection.execute(
            "insert into awaited_inventories (node_id, epoch) select id, (select epoch from restores) from nodes"
            " where id <> %s",
            (on,),
        )
        connection.execute("update nodes set state = case when id = %s then 'cordoned' else 'active' end", (on,))
    assert "is awaited since the restore" in why_full(database_url, seeded)


def test_after_a_restore_no_vlan_is_leased_while_a_node_is_awaited(database_url: str) -> None:
    seeded = fleet(database_url, 2)
    (other,) = others(database_url, seeded, "other")
    assert vlan_of(database_url, seeded) == 100
    restore(database_url, seeded.nodes[1].id)
    assert "is awaited since the restore" in why_full(database_url, other)
    assert vlan_of(database_url, seeded) == 100, "its VLAN is known"
    with connect(database_url) as connection:
        connection.execute("delete from awaited_inventories")
    assert vlan_of(database_url, other) == 101


def test_a_retired_node_is_awaited_no_more(database_url: str) -> None:
    """As the refusal advises: it sends no inventory, and is neither counted nor listed."""
    seeded = fleet(database_url, 2)
    restore(database_url, seeded.nodes[1].id)
    assert "is awaited since the restore" in why_full(database_url, seeded)
    with connect(database_url) as connection:
        assert [node.id for node in awaited_nodes(connection)] == [seeded.nodes[1].id]
        connection.execute("update nodes set driver = 'redfish' where id = %s", (seeded.nodes[1].id,))
        assert machine_finding(database_url).verdict == "warning"
        connection.execute("update nodes set state = 'retired' where id = %s", (seeded.nodes[1].id,))
        assert awaited_nodes(connection) == []
    assert machine_finding(database_url).verdict == "ok"
    assert run_with(database_url, count_awaited_inventories) == 0
    assert vlan_of(database_url, seeded) == 100


def swept(url: str, quarantine_seconds: float, limit: int = 10) -> list[Any]:
    """The leases after one run of the worker's sweeper."""
    run_with(url, lambda context: sweep_left_vlans(context, quarantine_seconds, limit))
    return rows_of(url, VLANS)


def test_what_no_lease_asks_for_is_free_again_too(database_url: str) -> None:
    """A site waits for the VLANs of networks."""
    seeded = fleet(database_url)
    second, third = others(database_url, seeded, "second", "third")
    first, _ = begin(database_url, seeded)
    begin(database_url, second)
    leave(database_url, seeded, first)
    assert swept(database_url, 3_600.0) == [("north", 100, False), ("north", 101, True)], "in quarantine"
    add_orphan(database_url, seeded.nodes[0].id, uuid.uuid4())
    assert swept(database_url, 0.0) == [("north", 100, False), ("north", 101, True)], "an orphan may carry it"
    with connect(database_url) as connection:
        connection.execute("delete from node_orphans")
    assert swept(database_url, 0.0) == [("north", 101, True)]
    assert vlan_of(database_url, third, replace(TWO, vlan_quarantine_seconds=3_600.0)) == 100


def test_the_vlan_of_a_network_without_a_guest_begins_its_quarantine(database_url: str) -> None:
    """A lease that found no address, or a worker of the version before, said nothing."""
    seeded = fleet(database_url)
    (second,) = others(database_url, seeded, "second")
    first, _ = begin(database_url, seeded)
    begin(database_url, second)
    leave(database_url, seeded, first)
    with connect(database_url) as connection:
        connection.execute("update network_vlans set left_at = null")
    assert swept(database_url, 3_600.0) == [("north", 100, False), ("north", 101, True)]
