"""Locks are taken in one order (key, node, quota), so that no deadlock arises; a create passes a locked node."""

from __future__ import annotations

import asyncio
import random

import pytest

from orchestrator.allocations.commands.create import create_allocations
from orchestrator.operations.store.operations import Answer
from orchestrator.placement.store.placing import Create
from tests.placement.fleet import Fleet, Tenant, create_all, create_of, working
from tests.reservations.holding import deadlocks

ROUNDS = 12


def test_a_create_passes_a_locked_node(database_url: str) -> None:
    """The best node is locked by another session for the whole time; nothing waits and nothing is deferred."""
    fleet = Fleet(database_url, slice_nodes=3)
    tenant = fleet.tenant()
    locked = fleet.one("select id from nodes order by placement_rank, id limit 1")
    expected = fleet.one("select id from nodes order by placement_rank, id limit 1 offset 1")

    async def scene() -> None:
        async with working(database_url) as (context, catalogue):
            fleet.connection.execute("begin")
            fleet.connection.execute("select from nodes where id = %s for update", (locked,))
            results = await create_allocations(context, catalogue, [create_of(tenant), create_of(tenant)])
            assert [result.status for result in results if isinstance(result, Answer)] == [201, 201]
            fleet.connection.execute("rollback")

    asyncio.run(scene())
    assert fleet.one("select array_agg(distinct node_id) from allocations") == [expected]
    assert deadlocks(database_url) == 0


def shuffled(chance: random.Random, creates: list[Create]) -> list[Create]:
    """The same creates in another order."""
    return chance.sample(creates, len(creates))


@pytest.mark.parametrize("limit", [None, 1000], ids=["no quota", "quota"])
def test_lists_that_share_keys_tenants_and_nodes_never_deadlock(database_url: str, limit: int | None) -> None:
    """Deadlocks are counted by PostgreSQL: a retry would hide them from the outcomes."""
    fleet = Fleet(database_url, slice_nodes=4)
    tenants = [fleet.tenant(limit) for _ in range(5)]
    chance = random.Random(11)

    def creates_of(turn: int) -> list[Create]:
        return [_keyed(tenant, turn, n) for tenant in tenants for n in range(2)]

    async def scene() -> None:
        async with working(database_url, pool_size=12) as (context, catalogue):
            for turn in range(ROUNDS):
                lists = [shuffled(chance, creates_of(turn)) for _ in range(6)]
                fresh = [
                    [create_of(tenant) for tenant in chance.sample(tenants, len(tenants)) for _ in range(2)]
                    for _ in range(4)
                ]
                await asyncio.gather(*(create_all(context, catalogue, one) for one in (*lists, *fresh)))
                assert fleet.overlaps() == 0
                fleet.connection.execute("truncate claims, allocations, allocation_timeline, operations, outbox")
                fleet.connection.execute("update tenant_quotas set gpus_used = 0")
                fleet.connection.execute("select refresh_node_fit(id) from nodes")

    asyncio.run(scene())
    assert deadlocks(database_url) == 0


def _keyed(tenant: Tenant, turn: int, n: int) -> Create:
    return create_of(tenant, key=f"{turn}-{n}")
