"""Leases of VLANs: with a network's first guest on a node that is connected by them, never twice, and free after a quarantine."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from node_agent.protocol import FailureCode, Heartbeat
from node_agent.wire.networks import TENANT_NETWORK_FEATURE, SpanReport
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.networks.store.vlans import LOCK_POOL
from orchestrator.nodes.commands.heartbeat import record_heartbeat
from orchestrator.operations.execution import Context, Limits
from orchestrator.verification import Bounds
from orchestrator.verification.fleet.leased_networks import check_leased_networks
from tests.allocations.driving import (
    allocation_of,
    clean_up,
    failed,
    release,
    report,
    rows_of,
    run_with,
    task_of,
)
from tests.allocations.seeding import Seeded, connect, create_allocation
from tests.networks.leasing import (
    BY_VLAN,
    BY_VXLAN,
    TWO,
    VLANS,
    begin,
    body_of,
    fleet,
    order_of,
    others,
    vlan_of,
    why_full,
)
from tests.support.waiting import pause


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


def test_a_lease_waits_for_the_pool_before_it_locks_the_network(database_url: str) -> None:
    """As a lease that makes a network does."""
    seeded = fleet(database_url, features=BY_VXLAN)
    begin(database_url, seeded)
    with connect(database_url) as connection:
        connection.execute("update nodes set agent_features = %s", (BY_VLAN,))
    allocation = create_allocation(database_url, seeded, gpus=1)
    rival = psycopg.connect(database_url)
    rival.execute(LOCK_POOL)

    async def work(context: Context) -> list[Any]:
        leasing = asyncio.create_task(begin_provisioning(context, allocation, "w"))
        while not rows_of(database_url, "select pid from pg_locks where locktype = 'advisory' and not granted"):
            assert not leasing.done()
            await pause(0.02)
        with connect(database_url) as connection:
            free = connection.execute("select id from networks for no key update skip locked").fetchall()
        rival.rollback()
        await leasing
        return free

    free = run_with(database_url, work, limits=replace(Limits(), networks=TWO))
    rival.close()
    assert len(free) == 1
    assert order_of(database_url, allocation).vlan == 100


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
