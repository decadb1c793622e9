"""Leases of addresses, ports and subnets: with the first provision task, never twice, until the claim is closed."""

from __future__ import annotations

import asyncio
import base64
import uuid
from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

import psycopg
import pytest

from node_agent.protocol import FailureCode, ProvisionParameters, RebuildParameters, TaskBody
from node_agent.wire.networks import NetworkOrder
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.commands.verbs import begin_verb, order_verb
from orchestrator.allocations.outcomes import Begun, Concluded
from orchestrator.allocations.queries import find_allocation
from orchestrator.allocations.states import Verb
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.networks.rules import NetworkFull, NetworkLimits, mac_of
from orchestrator.networks.store.leases import lease_network
from orchestrator.operations.execution import Context, Limits, transact
from orchestrator.tenants.commands.tenants import delete_tenant
from orchestrator.verification import Bounds
from orchestrator.verification.fleet.leased_networks import check_leased_networks
from tests.allocations.driving import (
    ADMIN,
    PROVISIONED,
    TENANT,
    allocation_of,
    clean_up,
    completed,
    failed,
    operation,
    provision,
    release,
    report,
    row_of,
    rows_of,
    run_with,
    task_of,
)
from tests.allocations.seeding import Seeded, add_tenant, connect, create_allocation, seed

LEASES = "select allocation_id, host(address), network_id from network_addresses order by address"
PORTS = "select node_id, port, allocation_id, guest_port from published_ports"
SMALL = NetworkLimits(IPv4Network("10.80.0.0/28"), 29, 40_000, 40_002)
"""Two subnets of five guests each, and three ports of a node."""


def networked(url: str, nodes: int = 1) -> Seeded:
    """A fleet whose agents make tenant networks."""
    seeded = seed(url, slice_nodes=nodes)
    with connect(url) as connection:
        connection.execute("update nodes set agent_features = '{tenant_network}'")
    return seeded


def begin(url: str, allocation: uuid.UUID, limits: NetworkLimits = SMALL) -> Begun | Concluded | Any:
    """Begin the provision of an allocation."""
    return run_with(
        url, lambda context: begin_provisioning(context, allocation, "w"), limits=replace(Limits(), networks=limits)
    )


def body_of(url: str, allocation: uuid.UUID) -> TaskBody:
    """The allocation's newest task, as its node reads it."""
    return TaskBody.model_validate_json(base64.b64decode(task_of(url, allocation)["envelope"]["payload"]))


def ordered(url: str, allocation: uuid.UUID) -> NetworkOrder | None:
    """The network in the allocation's newest task."""
    return ProvisionParameters.model_validate(body_of(url, allocation).parameters).network


def test_the_first_task_names_the_leased_network(database_url: str) -> None:
    seeded = networked(database_url)
    allocation = create_allocation(database_url, seeded)
    assert rows_of(database_url, LEASES) == [], "a create leases nothing"
    begin(database_url, allocation)
    order = ordered(database_url, allocation)
    assert order is not None
    assert (str(order.subnet), str(order.gateway), str(order.address)) == ("10.80.0.0/29", "10.80.0.1", "10.80.0.2")
    assert order.mac == mac_of(order.address) == "52:54:0a:50:00:02"
    assert order.vni == 1
    (address,) = rows_of(database_url, LEASES)
    assert address == (allocation, "10.80.0.2", order.network_id)
    (port,) = rows_of(database_url, PORTS)
    assert port == (seeded.nodes[0].id, order.ssh_port, allocation, 22)
    assert 40_000 <= order.ssh_port <= 40_002


def test_an_agent_without_the_feature_gets_no_network(database_url: str) -> None:
    seeded = seed(database_url)
    allocation = create_allocation(database_url, seeded)
    begin(database_url, allocation)
    assert "network" not in body_of(database_url, allocation).parameters, "an agent of the version before refuses it"
    assert rows_of(database_url, LEASES) == []


def test_another_attempt_and_a_rebuild_keep_what_is_leased(database_url: str) -> None:
    seeded = networked(database_url)
    allocation = create_allocation(database_url, seeded)
    limits = replace(Limits(), provision_retry_first_seconds=0.0)

    async def work(context: Context) -> None:
        await begin_provisioning(context, allocation, "w")
        first = ordered(database_url, allocation)
        await report(
            context,
            task_of(database_url, allocation),
            failed(task_of(database_url, allocation), FailureCode.INTERRUPTED),
        )
        await finish_provisioning(context, allocation)
        await begin_provisioning(context, allocation, "w")
        assert task_of(database_url, allocation)["attempt"] == 2
        assert ordered(database_url, allocation) == first
        task = task_of(database_url, allocation)
        await report(context, task, completed(task, PROVISIONED))
        await finish_provisioning(context, allocation)
        await order_verb(context, operation(seeded), TENANT, seeded.tenant_id, allocation, Verb.REBUILD)
        await begin_verb(context, allocation, "v")
        rebuilt = RebuildParameters.model_validate(body_of(database_url, allocation).parameters)
        assert rebuilt.network == first

    run_with(database_url, work, limits=limits)


def test_a_later_attempt_that_finds_no_address_fails_with_the_code(database_url: str) -> None:
    """The agent makes tenant networks only since its restart."""
    seeded = networked(database_url)
    limits = replace(Limits(), provision_retry_first_seconds=0.0, networks=SMALL)
    others = [create_allocation(database_url, seeded, gpus=1) for _ in range(3)]
    for other in others:
        begin(database_url, other)
    allocation = create_allocation(database_url, seeded, gpus=1)

    async def work(context: Context) -> None:
        set_features(database_url, "{}")
        await begin_provisioning(context, allocation, "w")
        task = task_of(database_url, allocation)
        await report(context, task, failed(task, FailureCode.INTERRUPTED))
        await finish_provisioning(context, allocation)
        set_features(database_url, "{tenant_network}")
        concluded = await begin_provisioning(context, allocation, "w")
        assert isinstance(concluded, Concluded)
        assert concluded.code == "network_full"

    run_with(database_url, work, limits=limits)
    assert allocation_of(database_url, allocation)["state"] == "failed"


def test_what_a_process_of_the_version_before_left_goes_with_its_tenant(database_url: str) -> None:
    seeded = networked(database_url)
    allocation = create_allocation(database_url, seeded)

    async def work(context: Context) -> None:
        await provision(context, database_url, allocation)
        with connect(database_url) as connection:
            left = connection.execute("select * from network_addresses").fetchall()
            ports = connection.execute("select * from published_ports").fetchall()
        await release(context, seeded, allocation)
        await clean_up(context, database_url, allocation)
        with connect(database_url) as connection, connection.cursor() as cursor:
            cursor.executemany("insert into network_addresses values (%s, %s, %s, %s, %s)", left)
            cursor.executemany("insert into published_ports values (%s, %s, %s, %s)", ports)
        await delete_tenant(context, operation(seeded), ADMIN, seeded.tenant_id)

    run_with(database_url, work)
    assert rows_of(database_url, LEASES) == rows_of(database_url, PORTS) == []


def test_what_a_process_of_the_version_before_left_does_not_hold_up_the_archive(database_url: str) -> None:
    seeded = networked(database_url)
    allocation = create_allocation(database_url, seeded)
    begin(database_url, allocation)
    with connect(database_url) as connection:
        connection.execute("set session_replication_role = replica")
        connection.execute("delete from allocation_timeline")
        connection.execute("set session_replication_role = origin")
        connection.execute("delete from allocations where id = %s", (allocation,))
    assert rows_of(database_url, LEASES) == rows_of(database_url, PORTS) == []


def test_a_vni_is_drawn_once(database_url: str) -> None:
    """A guest of the deleted tenant may still run on a node that does not answer."""
    seeded = networked(database_url)
    other = networked_tenant(database_url, seeded, "other")
    begin(database_url, create_allocation(database_url, seeded, gpus=1))
    first = rows_of(database_url, "select vni from networks")
    with connect(database_url) as connection:
        connection.execute("delete from networks")
    begin(database_url, other)
    assert rows_of(database_url, "select vni from networks") != first


def set_features(url: str, features: str) -> None:
    """What the agents of all nodes say that they can do."""
    with connect(url) as connection:
        connection.execute("update nodes set agent_features = cast(%s as text[])", (features,))


def test_what_is_leased_is_shown_and_free_once_the_claim_is_closed(database_url: str) -> None:
    seeded = networked(database_url)
    allocation = create_allocation(database_url, seeded)

    async def shown(context: Context) -> Any:
        return (await find_allocation(context.database, allocation, seeded.tenant_id))["network"]

    async def work(context: Context) -> None:
        assert await shown(context) is None
        await provision(context, database_url, allocation)
        seen = await shown(context)
        port = seen.pop("published")[0]
        assert seen == {
            "address": "10.64.0.2", "subnet": "10.64.0.0/24", "gateway": "10.64.0.1", "names": [f"berth-{allocation}"],
        }  # fmt: skip
        assert port["guest_port"] == 22
        await release(context, seeded, allocation)
        assert len(rows_of(database_url, LEASES)) == 1, "until the cleanup is proven"
        await clean_up(context, database_url, allocation)
        assert await shown(context) is None

    run_with(database_url, work)
    assert (rows_of(database_url, LEASES), rows_of(database_url, PORTS)) == ([], [])
    assert row_of(database_url, "select count(*) as n from networks")["n"] == 1, "the tenant keeps its subnet"


def test_a_tenant_keeps_its_network_and_another_gets_another(database_url: str) -> None:
    seeded = networked(database_url, 2)
    with connect(database_url) as connection:
        other = replace(
            seeded, tenant_id=(rival := add_tenant(connection, "rival")).tenant_id, ssh_key_id=rival.ssh_key_id
        )
    made = [create_allocation(database_url, whose, gpus=1) for whose in (seeded, other, seeded)]
    for allocation in made:
        begin(database_url, allocation)
    orders = [ordered(database_url, allocation) for allocation in made]
    assert [str(order.address) for order in orders if order] == ["10.80.0.2", "10.80.0.10", "10.80.0.3"]
    assert [order.vni for order in orders if order] == [1, 2, 1]
    third = networked_tenant(database_url, seeded, "third")
    assert isinstance(concluded := begin(database_url, third), Concluded)
    assert (concluded.code, concluded.cleanup) == ("network_full", True)
    assert "no free subnet" in allocation_of(database_url, third)["failure_detail"]


def networked_tenant(url: str, seeded: Seeded, name: str) -> uuid.UUID:
    """An allocation of a new tenant."""
    with connect(url) as connection:
        rival = add_tenant(connection, name)
    return create_allocation(url, replace(seeded, tenant_id=rival.tenant_id, ssh_key_id=rival.ssh_key_id), gpus=1)


@pytest.mark.parametrize(
    ("limits", "room", "words"),
    [
        (replace(SMALL, port_last=40_010), 5, "no free address in 10.80.0.0/29"),
        (SMALL, 3, "no free port from 40000 to 40002"),
    ],
    ids=["addresses", "ports"],
)
def test_what_is_full_fails_with_a_code_and_a_release_makes_room(
    database_url: str, limits: NetworkLimits, room: int, words: str
) -> None:
    seeded = networked(database_url)
    made = [create_allocation(database_url, seeded, gpus=1) for _ in range(room + 1)]
    for allocation in made[:-1]:
        assert isinstance(begin(database_url, allocation, limits), Begun)
    full = begin(database_url, made[-1], limits)
    assert isinstance(full, Concluded)
    assert (full.code, full.cleanup) == ("network_full", True)
    assert words in allocation_of(database_url, made[-1])["failure_detail"]

    async def end(context: Context) -> None:
        await clean_up(context, database_url, made[-1])
        await release(context, seeded, made[0])
        await clean_up(context, database_url, made[0])

    run_with(database_url, end)
    again = create_allocation(database_url, seeded, gpus=1)
    assert isinstance(begin(database_url, again, limits), Begun)


def test_rivals_lease_nothing_twice(database_url: str) -> None:
    seeded = networked(database_url, 3)
    tenants = [seeded]
    with connect(database_url) as connection:
        for name in ("b", "c"):
            rival = add_tenant(connection, name)
            tenants.append(replace(seeded, tenant_id=rival.tenant_id, ssh_key_id=rival.ssh_key_id))
    made = [create_allocation(database_url, tenants[number % 3], gpus=1) for number in range(18)]

    async def work(context: Context) -> None:
        outcomes = await asyncio.gather(*(begin_provisioning(context, one, "w") for one in made * 2))
        assert all(isinstance(outcome, Begun) for outcome in outcomes)

    run_with(database_url, work, pool_size=12)
    found = [ordered(database_url, one) for one in made]
    orders = [order for order in found if order is not None]
    assert len({order.address for order in orders}) == 18
    assert {order.network_id: order.subnet for order in orders}.keys() == {
        row[2] for row in rows_of(database_url, LEASES)
    }
    assert len({order.subnet for order in orders}) == len({order.vni for order in orders}) == 3
    assert len({row[:2] for row in rows_of(database_url, PORTS)}) == 18
    with psycopg.connect(database_url) as connection:
        assert check_leased_networks(connection, Bounds()).violations == []


def test_the_database_refuses_what_overlaps(database_url: str) -> None:
    seeded = networked(database_url)
    with connect(database_url) as connection:
        rival = add_tenant(connection, "rival")
        make = "insert into networks (tenant_id, region, vni, subnet) values (%s, 'north', %s, %s)"
        connection.execute(make, (seeded.tenant_id, 1, "10.64.0.0/24"))
        for subnet in ("10.64.0.0/24", "10.64.0.128/25", "10.0.0.0/8"):
            with pytest.raises(psycopg.errors.ExclusionViolation):
                connection.execute(make, (rival.tenant_id, 2, subnet))
        connection.execute(make, (rival.tenant_id, 2, "10.64.1.0/24"))


def test_a_smaller_pool_later_overlaps_no_network_of_before(database_url: str) -> None:
    seeded = networked(database_url)
    begin(database_url, create_allocation(database_url, seeded, gpus=1), replace(SMALL, prefix_length=28))
    other = networked_tenant(database_url, seeded, "other")
    wider = replace(SMALL, pool=IPv4Network("10.80.0.0/27"))
    assert isinstance(begin(database_url, other, wider), Begun)
    order = ordered(database_url, other)
    assert order is not None
    assert str(order.subnet) == "10.80.0.16/29"


def test_the_last_vni_ends_the_pool(database_url: str) -> None:
    seeded = networked(database_url)
    with connect(database_url) as connection:
        connection.execute("select setval('network_vnis', %s)", (2**24 - 1,))
    allocation = create_allocation(database_url, seeded, gpus=1)

    async def work(context: Context) -> None:
        async def lease(tx: Any) -> None:
            subject = await lock_allocation(tx, allocation)
            assert subject is not None
            await lease_network(tx, subject, NetworkLimits())

        with pytest.raises(NetworkFull, match="no free subnet"):
            await transact(context, lease)

    run_with(database_url, work)


def test_a_deleted_tenant_gives_its_subnet_back(database_url: str) -> None:
    seeded = networked(database_url)
    allocation = create_allocation(database_url, seeded)

    async def work(context: Context) -> None:
        await provision(context, database_url, allocation)
        await release(context, seeded, allocation)
        await clean_up(context, database_url, allocation)
        await delete_tenant(context, operation(seeded), ADMIN, seeded.tenant_id)

    run_with(database_url, work)
    assert rows_of(database_url, "select id from networks") == []
