"""A node that reports false inventories harms neither the reconciler, nor other nodes, nor tenants."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest

from node_agent.protocol import Connection, Heartbeat, HeldAllocation, HeldInventory
from orchestrator.allocations.commands.provision import begin_provisioning
from orchestrator.allocations.commands.task_results import accept_task_result
from orchestrator.nodes.commands.heartbeat import record_heartbeat
from orchestrator.nodes.commands.orphans import report_orphan
from orchestrator.nodes.inventory_queries import compare_inventories
from orchestrator.nodes.store.inventories import ORPHANS_PER_NODE_MAX
from orchestrator.operations.execution import Context
from orchestrator.problems import Invalid
from tests.allocations.driving import CONNECTION, PROVISIONED, completed, row_of, run_with, task_of
from tests.allocations.seeding import create_allocation, seed

EVERYTHING = uuid.UUID(int=0)
EAST = timezone(timedelta(hours=23, minutes=59))


async def claim_to_hold(context: Context, node_id: uuid.UUID, count: int, after: datetime | None = None) -> None:
    """A heartbeat that names unknown allocations; `after`: the reported time of the inventory, else the server's."""
    heartbeat = Heartbeat(agent_version="1", driver="noop", allocations=[])
    told = after or (await record_heartbeat(context, node_id, heartbeat, sandbox_allowed=True)).server_time
    held = [HeldAllocation(allocation_id=uuid.uuid4(), slots=[0]) for _ in range(count)]
    inventory = HeldInventory(gathered_after=told, allocations=held)
    await record_heartbeat(
        context, node_id, heartbeat.model_copy(update={"inventory": inventory}), sandbox_allowed=True
    )


@pytest.mark.parametrize(
    "untold",
    [datetime(1, 1, 1, tzinfo=EAST), datetime(2001, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)],
    ids=["before the year 1 in UTC", "before the node was registered", "not come yet"],
)
def test_a_time_that_the_server_did_not_send_is_not_taken(database_url: str, untold: datetime) -> None:
    """PostgreSQL keeps years that Python cannot read back: the reconciler of every node would end there."""
    seeded = seed(database_url)
    lying = seeded.nodes[0].id

    async def way(context: Context) -> None:
        await claim_to_hold(context, lying, 1, after=untold)
        found = await compare_inventories(context, EVERYTHING, nodes_max=10, refresh_seconds=0, limit=10)
        assert found.unexplained == []

    run_with(database_url, way)
    assert row_of(database_url, "select inventory, inventory_after::text from nodes where id = %s", lying) == {
        "inventory": None, "inventory_after": None,
    }  # fmt: skip


def test_a_node_that_names_much_hides_no_other(database_url: str) -> None:
    """What is looked at in a round is bounded; each node has its turn in it."""
    seeded = seed(database_url, slice_nodes=2)
    first, second = sorted(node.id for node in seeded.nodes[:2])

    async def way(context: Context) -> None:
        await claim_to_hold(context, first, 250)
        await claim_to_hold(context, second, 1)
        found = await compare_inventories(context, EVERYTHING, nodes_max=10, refresh_seconds=0, limit=10)
        assert len(found.unexplained) == 10
        assert {one.node_id for one in found.unexplained} == {first, second}

    run_with(database_url, way)


@pytest.mark.parametrize(
    "lie",
    [
        {"user": "-oProxyCommand=touch${IFS}pwned"},
        {"user": "tenant\n"},
        {"user": ""},
        {"host": "-oProxyCommand=touch"},
        {"host": "h\n* ssh-ed25519 AAAA"},
        {"host": "*"},
        {"host": ""},
        {"host": "\x1b[31mred"},
        {"host": "h" * 254},
        {"port": "22"},
        {"port": 22.5},
        {"host_key": "ssh-ed25519 AAAA\n* ssh-rsa BBBB"},
        {"host_key": "@cert-authority * ssh-ed25519 AAAA"},
        {"host_key": ""},
    ],
    ids=lambda lie: repr(lie)[:40],
)
def test_where_to_log_in_is_nothing_but_that(database_url: str, lie: dict[str, object]) -> None:
    """A tenant's `ssh` is called with it, and its known_hosts is written from it."""
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(database_url, allocation_id)
        report = completed(task, {**PROVISIONED, "connection": {**CONNECTION, **lie}})
        with pytest.raises(Invalid):
            await accept_task_result(context, task["node_id"], 1, task["id"], report)

    run_with(database_url, way)
    assert task_of(database_url, allocation_id)["state"] == "queued"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "2001:db8::7", "n7.eu-1.example", "node_7", "a"])
@pytest.mark.parametrize("user", ["tenant", "ubuntu", "_svc", "u-1"])
def test_names_and_addresses_are_taken(host: str, user: str) -> None:
    assert Connection(host=host, port=22, user=user, host_key="ssh-ed25519 AAAAC3Nz+/==").host == host


def test_a_node_is_believed_a_bounded_number_of_orphans(database_url: str) -> None:
    """Each asks for an operator's decision: one node cannot ask for any number of them (P13)."""
    seeded = seed(database_url)
    lying = seeded.nodes[0].id

    async def way(context: Context) -> int:
        await claim_to_hold(context, lying, 2 * ORPHANS_PER_NODE_MAX)
        found = await compare_inventories(context, EVERYTHING, nodes_max=10, refresh_seconds=0, limit=1_000)
        for one in found.unexplained:
            await report_orphan(context, one.node_id, one.allocation_id)
        again = await compare_inventories(context, EVERYTHING, nodes_max=10, refresh_seconds=0, limit=1_000)
        return len([one for one in again.unexplained if one.orphan_id is None])

    assert run_with(database_url, way) == 0
    assert row_of(database_url, "select count(*) from node_orphans") == {"count": ORPHANS_PER_NODE_MAX}
