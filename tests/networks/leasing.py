"""Networks that lease VLANs in tests, and what keeps them leased."""

from __future__ import annotations

import base64
import uuid
from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

from node_agent.protocol import ProvisionParameters, TaskBody
from node_agent.wire.networks import TENANT_NETWORK_FEATURE, VLAN_FEATURE, VXLAN_FEATURE, NetworkOrder
from orchestrator.allocations.commands.provision import begin_provisioning
from orchestrator.allocations.outcomes import Begun, Concluded
from orchestrator.networks.rules import NetworkLimits
from orchestrator.operations.execution import Context, Limits
from tests.allocations.driving import (
    allocation_of,
    clean_up,
    release,
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


def restore(url: str, awaited: uuid.UUID) -> None:
    """The database is one of before, and this node's inventory is awaited."""
    with connect(url) as connection:
        connection.execute(
            "with made as (insert into restores (written_by, leader_id, head_version, without_export, closed_at)"
            " values ('1-00000001', '1-00000002', 0, 'lost', clock_timestamp()) returning epoch)"
            " insert into awaited_inventories (node_id, epoch) select %s, epoch from made",
            (awaited,),
        )


def add_orphan(url: str, node: uuid.UUID, allocation: uuid.UUID) -> None:
    """A guest that waits for an operator's decision."""
    with connect(url) as connection:
        connection.execute(
            "insert into node_orphans (node_id, allocation_id, slots, waits_for, waits_since)"
            " values (%s, %s, '{0}', 'decision', clock_timestamp())",
            (node, allocation),
        )
