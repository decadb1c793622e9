"""Names of guests in their tenants' networks: leased with the address, one guest's at a time, until the claim is closed."""

from __future__ import annotations

import asyncio
import base64
import uuid
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from node_agent.protocol import ProvisionParameters, RebuildParameters, TaskBody
from node_agent.wire.networks import NAMES_FEATURE, TENANT_NETWORK_FEATURE, VXLAN_FEATURE, NetworkOrder
from orchestrator.allocations.commands.provision import begin_provisioning
from orchestrator.allocations.commands.verbs import begin_verb, order_verb
from orchestrator.allocations.queries import find_allocation
from orchestrator.allocations.states import Verb
from orchestrator.allocations.store.changing import change_members
from orchestrator.networks.rules import label_of
from orchestrator.networks.store.span import find_guests_elsewhere
from orchestrator.operations.execution import Context
from tests.allocations.driving import (
    TENANT,
    clean_up,
    operation,
    provision,
    release,
    rows_of,
    run_with,
    task_of,
)
from tests.allocations.seeding import Seeded, add_tenant, connect, create_allocation, seed

NAMES = "select allocation_id, name from network_addresses order by address"


def named(url: str, nodes: int = 1, features: tuple[str, ...] = (TENANT_NETWORK_FEATURE, NAMES_FEATURE)) -> Seeded:
    """A fleet whose agents answer DHCP and DNS in tenant networks."""
    seeded = seed(url, slice_nodes=nodes)
    with connect(url) as connection:
        connection.execute("update nodes set agent_features = %s", (list(features),))
    return seeded


def begin(url: str, allocation: uuid.UUID) -> list[str]:
    """Begin the provision of an allocation; the names in its task."""
    run_with(url, lambda context: begin_provisioning(context, allocation, "w"))
    order = ordered(url, allocation)
    return [] if order is None else order.names


def body_of(url: str, allocation: uuid.UUID) -> TaskBody:
    """The allocation's newest task, as its node reads it."""
    return TaskBody.model_validate_json(base64.b64decode(task_of(url, allocation)["envelope"]["payload"]))


def ordered(url: str, allocation: uuid.UUID) -> NetworkOrder | None:
    """The network in the allocation's newest task."""
    return ProvisionParameters.model_validate(body_of(url, allocation).parameters).network


def create(url: str, seeded: Seeded, name: str | None) -> uuid.UUID:
    """An allocation of one GPU with this name."""
    return create_allocation(url, seeded, gpus=1, name=name)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (None, None), ("web", "web"), ("Web-2", "web-2"), ("a", "a"), ("1a", "1a"), ("a" * 63, "a" * 63), ("a" * 64, None),
        ("my web", None), ("web.other", None), ("-web", None), ("web-", None), ("web_1", None), ("10", None), ("w\u00e9b", None),
        ("\u212a", None), ("web,10.0.0.1", None), ("web#", None), ("localhost", None), ("LOCALHOST", None),
        ("berth-0190b5a0-0000-7000-8000-000000000001", None), ("Berth-1", None), ("berth", "berth"),
    ],
)  # fmt: skip
def test_a_name_is_leased_if_it_is_a_label(name: str | None, label: str | None) -> None:
    assert label_of(name) == label


def test_the_first_task_names_the_guest_and_the_tenant_sees_it(database_url: str) -> None:
    seeded = named(database_url)
    allocation = create(database_url, seeded, "Web")
    assert begin(database_url, allocation) == [f"berth-{allocation}", "web"]

    async def shown(context: Context) -> Any:
        return (await find_allocation(context.database, allocation, seeded.tenant_id))["network"]["names"]

    assert run_with(database_url, shown) == [f"berth-{allocation}", "web"]


def test_a_name_is_one_guests_until_its_claim_is_closed(database_url: str) -> None:
    seeded = named(database_url)
    first, second, third = (create(database_url, seeded, "web") for _ in range(3))

    async def work(context: Context) -> None:
        await provision(context, database_url, first)
        await begin_provisioning(context, second, "w")
        await release(context, seeded, first)
        assert rows_of(database_url, NAMES) == [(first, "web"), (second, None)], "until the cleanup is proven"
        await clean_up(context, database_url, first)
        await begin_provisioning(context, third, "w")

    run_with(database_url, work)
    assert dict(rows_of(database_url, NAMES)) == {second: None, third: "web"}
    order = ordered(database_url, second)
    assert order is not None
    assert order.names == [f"berth-{second}"]


def test_another_tenant_has_the_same_name(database_url: str) -> None:
    seeded = named(database_url)
    with connect(database_url) as connection:
        rival = add_tenant(connection, "rival")
    other = replace(seeded, tenant_id=rival.tenant_id, ssh_key_id=rival.ssh_key_id)
    names = [begin(database_url, create(database_url, whose, "web"))[1] for whose in (seeded, other)]
    assert names == ["web", "web"]


def test_of_provisions_at_once_one_leases_the_name(database_url: str) -> None:
    seeded = named(database_url, 2)
    allocations = [create(database_url, seeded, "web") for _ in range(8)]

    async def work(context: Context) -> None:
        await asyncio.gather(*(begin_provisioning(context, one, "w") for one in allocations))

    run_with(database_url, work, pool_size=10)
    assert sorted(name or "" for _, name in rows_of(database_url, NAMES)) == [""] * 7 + ["web"]


def test_the_database_refuses_a_name_twice_and_one_that_is_no_label(database_url: str) -> None:
    seeded = named(database_url)
    for name in ("web", "db"):
        begin(database_url, create(database_url, seeded, name))
    with connect(database_url) as connection:
        with pytest.raises(psycopg.errors.UniqueViolation, match="network_name_once"):
            connection.execute("update network_addresses set name = 'web'")
        with pytest.raises(psycopg.errors.CheckViolation, match="network_name_is_a_label"):
            connection.execute("update network_addresses set name = 'a b' where name = 'web'")


@pytest.mark.parametrize("named_by_agent", [True, False])
def test_a_rebuild_keeps_the_name_whatever_the_allocation_is_called_now(
    database_url: str, named_by_agent: bool
) -> None:
    features = (TENANT_NETWORK_FEATURE, *([NAMES_FEATURE] if named_by_agent else []))
    seeded = named(database_url, 1, features)
    allocation = create(database_url, seeded, "web")

    async def work(context: Context) -> None:
        await provision(context, database_url, allocation)
        async with context.database.transaction() as tx:
            await change_members(tx, allocation, "db", None, succeeded=False)
        await order_verb(context, operation(seeded), TENANT, seeded.tenant_id, allocation, Verb.REBUILD)
        await begin_verb(context, allocation, "v")

    run_with(database_url, work)
    leased = "web" if named_by_agent else None
    assert rows_of(database_url, NAMES) == [(allocation, leased)], "a name that no agent answers is left to others"
    rebuilt = RebuildParameters.model_validate(body_of(database_url, allocation).parameters).network
    assert rebuilt is not None
    assert rebuilt.names == ([f"berth-{allocation}", "web"] if named_by_agent else [])
    assert ("names" in body_of(database_url, allocation).parameters["network"]) is named_by_agent, (
        "an agent of the version before refuses it"
    )


def test_nodes_learn_the_names_of_guests_on_other_nodes_of_their_networks(database_url: str) -> None:
    seeded = named(database_url, 2, (TENANT_NETWORK_FEATURE, VXLAN_FEATURE, NAMES_FEATURE))
    made = []
    for number, node in enumerate(seeded.nodes):
        with connect(database_url) as connection:
            connection.execute("update nodes set underlay = %s where id = %s", (f"192.0.2.{number + 1}", node.id))
            connection.execute(
                "update nodes set state = case when id = %s then 'active' else 'cordoned' end", (node.id,)
            )
        made.append(create(database_url, seeded, f"node-{number}"))
        begin(database_url, made[-1])

    async def work(context: Context) -> list[list[str]]:
        async with context.database.transaction() as tx:
            (network,) = (await find_guests_elsewhere(tx, seeded.nodes[0].id, None)).networks or []
        return [guest.names for guest in network.guests]

    assert run_with(database_url, work) == [[f"berth-{made[1]}", "node-1"]]
