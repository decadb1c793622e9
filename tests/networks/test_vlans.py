"""Leases of VLANs: with a network's first guest on a node that is connected by them, never twice, and free after a quarantine."""

from __future__ import annotations

import asyncio
import base64
import itertools
import uuid
from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from node_agent.protocol import FailureCode, Heartbeat, ProvisionParameters, TaskBody
from node_agent.wire.networks import TENANT_NETWORK_FEATURE, VLAN_FEATURE, VXLAN_FEATURE, NetworkOrder, SpanReport
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.outcomes import Begun, Concluded
from orchestrator.networks.rules import NetworkLimits
from orchestrator.nodes.commands.heartbeat import record_heartbeat
from orchestrator.operations.execution import Context, Limits
from orchestrator.tenants.commands.tenants import delete_tenant
from orchestrator.verification import Bounds
from orchestrator.verification.fleet.leased_networks import check_leased_networks
from tests.allocations.driving import (
    ADMIN,
    allocation_of,
    clean_up,
    failed,
    operation,
    release,
    report,
    rows_of,
    run_with,
    task_of,
)
from tests.allocations.seeding import Seeded, add_tenant, connect, create_allocation, seed

BY_VLAN = [TENANT_NETWORK_FEATURE, VLAN_FEATURE]
BY_VXLAN = [TENANT_NETWORK_FEATURE, VXLAN_FEATURE]
TWO = NetworkLimits(IPv4Network("10.80.0.0/16"), 24, 40_000, 40_999, (100, 101), 0.0)
"""Two VLANs, without a quarantine."""
VLANS = "select region, vlan, left_at is null from network_vlans order by region, vlan"


def fleet(url: str, nodes: int = 1, features: list[str] = BY_VLAN) -> Seeded:
    """A fleet whose agents make tenant networks, and connect them."""
    seeded = seed(url, slice_nodes=nodes)
    with connect(url) as connection:
        for number, node in enumerate(seeded.nodes, 1):
            connection.execute(
                "update nodes set agent_features = %s, underlay = %s, last_seen_at = clock_timestamp(), inventory = '[]',"
                " inventory_after = clock_timestamp() where id = %s",
                (features, f"192.0.2.{number}", node.id),
            )
    return seeded


def others(url: str, seeded: Seeded, *names: str) -> list[Seeded]:
    """New tenants of the same fleet."""
    with connect(url) as connection:
        made = [add_tenant(connection, name) for name in names]
    return [replace(seeded, tenant_id=one.tenant_id, ssh_key_id=one.ssh_key_id) for one in made]


def begin(url: str, whose: Seeded, limits: NetworkLimits = TWO) -> tuple[uuid.UUID, Begun | Concluded | Any]:
    """A new allocation of one GPU, and how its provision begins."""
    allocation = create_allocation(url, whose, gpus=1)
    bounds = replace(Limits(), networks=limits)
    return allocation, run_with(url, lambda context: begin_provisioning(context, allocation, "w"), limits=bounds)


def body_of(url: str, allocation: uuid.UUID) -> TaskBody:
    """The allocation's newest task, as its node reads it."""
    return TaskBody.model_validate_json(base64.b64decode(task_of(url, allocation)["envelope"]["payload"]))


def order_of(url: str, allocation: uuid.UUID) -> NetworkOrder:
    """The network in the allocation's newest task."""
    order = ProvisionParameters.model_validate(body_of(url, allocation).parameters).network
    assert order is not None
    return order


def vlan_of(url: str, whose: Seeded, limits: NetworkLimits = TWO) -> int | None:
    """The VLAN in the order of a new guest."""
    allocation, begun = begin(url, whose, limits)
    assert isinstance(begun, Begun), allocation_of(url, allocation)["failure_detail"]
    return order_of(url, allocation).vlan


def leave(url: str, whose: Seeded, *allocations: uuid.UUID) -> None:
    """These allocations end, and are cleaned up. Every node sends an inventory afterwards."""

    async def work(context: Context) -> None:
        for allocation in allocations:
            await release(context, whose, allocation)
            await clean_up(context, url, allocation)

    run_with(url, work)
    with connect(url) as connection:
        connection.execute("update nodes set last_seen_at = clock_timestamp(), inventory_after = clock_timestamp()")


def why_full(url: str, whose: Seeded, limits: NetworkLimits = TWO) -> str:
    """What the refusal of a new guest says."""
    allocation, concluded = begin(url, whose, limits)
    assert isinstance(concluded, Concluded)
    assert (concluded.code, concluded.cleanup) == ("network_full", True)
    return str(allocation_of(url, allocation)["failure_detail"])


def test_a_network_has_one_vlan_and_another_network_another(database_url: str) -> None:
    seeded = fleet(database_url, 2)
    (other,) = others(database_url, seeded, "other")
    assert [vlan_of(database_url, whose) for whose in (seeded, other, seeded, other)] == [100, 101, 100, 101]
    assert rows_of(database_url, VLANS) == [("north", 100, True), ("north", 101, True)]
    with psycopg.connect(database_url) as connection:
        assert check_leased_networks(connection, Bounds()).violations == []


@pytest.mark.parametrize("features", [[TENANT_NETWORK_FEATURE], BY_VXLAN])
def test_a_node_that_is_not_connected_by_vlans_is_named_none(database_url: str, features: list[str]) -> None:
    seeded = fleet(database_url, features=features)
    allocation, _ = begin(database_url, seeded)
    network = body_of(database_url, allocation).parameters["network"]
    assert "vlan" not in network, "an agent of the version before refuses it"
    assert rows_of(database_url, VLANS) == []


def test_a_network_that_has_a_vlan_is_not_named_it_on_a_node_of_another_kind(database_url: str) -> None:
    seeded = fleet(database_url)
    assert vlan_of(database_url, seeded) == 100
    with connect(database_url) as connection:
        connection.execute("update nodes set agent_features = %s", (BY_VXLAN,))
    assert vlan_of(database_url, seeded) is None


def test_a_later_attempt_on_a_node_that_is_now_connected_by_vlans_leases_one(database_url: str) -> None:
    seeded = fleet(database_url, features=BY_VXLAN)
    allocation = create_allocation(database_url, seeded, gpus=1)
    bounds = replace(Limits(), networks=TWO, provision_retry_first_seconds=0.0)

    async def work(context: Context) -> None:
        await begin_provisioning(context, allocation, "w")
        task = task_of(database_url, allocation)
        await report(context, task, failed(task, FailureCode.INTERRUPTED))
        await finish_provisioning(context, allocation)
        with connect(database_url) as connection:
            connection.execute("update nodes set agent_features = %s", (BY_VLAN,))
        await begin_provisioning(context, allocation, "w")

    run_with(database_url, work, limits=bounds)
    assert order_of(database_url, allocation).vlan == 100


def test_what_is_full_fails_with_the_counts_and_without_a_range_with_the_setting(database_url: str) -> None:
    seeded = fleet(database_url)
    second, third = others(database_url, seeded, "second", "third")
    assert "BERTH_NETWORK_VLANS of the workers names none" in why_full(database_url, seeded, replace(TWO, vlans=()))
    assert [vlan_of(database_url, whose) for whose in (seeded, second)] == [100, 101]
    assert "none of the 2 VLANs of BERTH_NETWORK_VLANS is left in north: 2 are used" in why_full(database_url, third)
    assert vlan_of(database_url, seeded) == 100, "a network that has one is not refused"


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
    away = seeded.nodes[1].id if held != "a guest of a claim that is closed" else allocation_of(database_url, first)["node_id"]
    found = first if HELD[held] == "ended" else uuid.uuid4()
    with connect(database_url) as connection:
        if HELD[held] is None:
            connection.execute(
                "insert into node_orphans (node_id, allocation_id, slots, waits_for, waits_since)"
                " values (%s, %s, '{0}', 'decision', clock_timestamp())",
                (away, found),
            )
        else:
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


def test_rivals_lease_no_vlan_twice(database_url: str) -> None:
    """More networks than VLANs, while others leave theirs."""
    seeded = fleet(database_url, 4)
    tenants = [seeded, *others(database_url, seeded, *"bcdefgh")]
    limits = replace(TWO, vlans=tuple(range(100, 106)))
    leaving = {whose.tenant_id: begin(database_url, whose, limits)[0] for whose in tenants[:4]}
    made = [(whose, create_allocation(database_url, whose, gpus=1)) for whose in tenants for _ in range(2)]

    async def work(context: Context) -> None:
        async def end(whose: Seeded) -> None:
            await release(context, whose, leaving[whose.tenant_id])
            await clean_up(context, database_url, leaving[whose.tenant_id])

        begun = (begin_provisioning(context, one, "w") for _, one in made)
        await asyncio.gather(*itertools.chain(begun, (end(whose) for whose in tenants[:4])))

    run_with(database_url, work, pool_size=12, limits=replace(Limits(), networks=limits))
    used: dict[int, set[uuid.UUID]] = {}
    for whose, allocation in made:
        if allocation_of(database_url, allocation)["state"] == "provisioning":
            vlan = order_of(database_url, allocation).vlan
            assert vlan is not None
            used.setdefault(vlan, set()).add(whose.tenant_id)
    assert len(used) == 6, "each is used"
    assert all(len(owners) == 1 for owners in used.values()), used
    with psycopg.connect(database_url) as connection:
        assert check_leased_networks(connection, Bounds()).violations == []


def test_vlans_of_sites_are_left_out(database_url: str) -> None:
    seeded = fleet(database_url)
    (other,) = others(database_url, seeded, "other")
    with connect(database_url) as connection:
        site = connection.execute(
            "insert into sites (name, recovery_key) values ('hall', repeat('k', 32)::bytea) returning id"
        ).fetchone()
        assert site is not None
        connection.execute(
            "insert into site_segments (site_id, provisioning_vlan, first_vlan, last_vlan, quarantine_seconds, changed_by)"
            " values (%s, 100, 300, 399, 0, 'admin:a')",
            site,
        )
    assert vlan_of(database_url, seeded) == 101
    assert "1 are those of sites" in why_full(database_url, other)
    assert vlan_of(database_url, other, replace(TWO, vlans=(300, 399, 400))) == 400


def test_after_a_restore_no_vlan_is_leased_while_a_node_is_awaited(database_url: str) -> None:
    seeded = fleet(database_url, 2)
    (other,) = others(database_url, seeded, "other")
    assert vlan_of(database_url, seeded) == 100
    with connect(database_url) as connection:
        connection.execute(
            "with made as (insert into restores (written_by, leader_id, head_version, without_export, closed_at)"
            " values ('1-00000001', '1-00000002', 0, 'lost', clock_timestamp()) returning epoch)"
            " insert into awaited_inventories (node_id, epoch) select %s, epoch from made",
            (seeded.nodes[1].id,),
        )
    assert "is awaited since the restore" in why_full(database_url, other)
    assert vlan_of(database_url, seeded) == 100, "its VLAN is known"
    with connect(database_url) as connection:
        connection.execute("delete from awaited_inventories")
    assert vlan_of(database_url, other) == 101


def test_the_database_refuses_a_vlan_of_two_networks(database_url: str) -> None:
    fleet(database_url)
    make = "insert into network_vlans (region, vlan, network_id) values (%s, %s, %s)"
    first, second = uuid.uuid4(), uuid.uuid4()
    with connect(database_url) as connection:
        connection.execute("insert into regions (name, display_name) values ('south', 'South')")
        connection.execute(make, ("north", 100, first))
        for values in (("north", 100, second), ("north", 101, first)):
            with pytest.raises(psycopg.errors.UniqueViolation):
                connection.execute(make, values)
        connection.execute(make, ("south", 100, second))


def beat(url: str, node: uuid.UUID, underlay: str, features: list[str], etag: str | None = None) -> Any:
    """What the control plane says of other nodes."""
    span = SpanReport.model_validate({"underlay": underlay, "etag": etag})
    heartbeat = Heartbeat(agent_version="1", driver="libvirt", allocations=[], features=features, span=span)

    async def work(context: Context) -> Any:
        return (await record_heartbeat(context, node, heartbeat, sandbox_allowed=True)).span

    return run_with(url, work)


def named(answer: Any) -> list[str]:
    """The guests that an answer names."""
    return [str(guest.underlay) for network in answer.networks for guest in network.guests]


def test_a_node_learns_of_guests_on_nodes_of_its_kind_and_others_are_logged(database_url: str) -> None:
    seeded = fleet(database_url, 3)
    for node in seeded.nodes:
        with connect(database_url) as connection:
            connection.execute(
                "update nodes set state = case when id = %s then 'active' else 'cordoned' end", (node.id,)
            )
        begin(database_url, seeded)
    first, second, _ = (node.id for node in seeded.nodes)
    answer = beat(database_url, first, "192.0.2.1", BY_VLAN)
    assert named(answer) == ["192.0.2.2", "192.0.2.3"]
    beat(database_url, second, "192.0.2.2", BY_VXLAN)
    with capture_logs() as logs:
        changed = beat(database_url, first, "192.0.2.1", BY_VLAN, answer.etag)
    assert named(changed) == ["192.0.2.3"], "its agent is connected by VXLAN since"
    assert [(one["event"], one["networks"]) for one in logs if one["event"] == "networks_divided"] == [
        ("networks_divided", 1)
    ]
    own = beat(database_url, first, "192.0.2.1", BY_VXLAN, changed.etag)
    assert named(own) == ["192.0.2.2"], "it is of the other kind itself"
