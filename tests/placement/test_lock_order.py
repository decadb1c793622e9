"""Locks are taken in one order (key, node, quota), so that no deadlock arises; a create passes a locked node.

Retries and short lock timeouts hide a deadlock from clients, so PostgreSQL counts them here, and searches for one long
before a batch's lock timeout.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from typing import Any

import psycopg
import pytest

from orchestrator.allocations.commands import create
from orchestrator.allocations.commands.create import create_allocations
from orchestrator.operations.store.operations import Answer
from orchestrator.placement.store.placing import Create
from orchestrator.reservations.hold_requests import HoldRequest
from tests.allocations.driving import rows_of
from tests.placement.fleet import Fleet, Tenant, create_all, create_of, working
from tests.reservations.holding import ReservationClient, as_client, deadlocks, seed_with_seats
from tests.support.reservation_lists import ask, hold_all, settled
from tests.support.rival_sessions import until_waiting

ROUNDS = 8
"""Enough to find a random order; a wrong order that follows the request is found in the first."""
SHUFFLES = 12
DEADLOCK_TIMEOUT = "20ms"
"""Below the 500 ms for which a batch waits for a lock: PostgreSQL looks for a deadlock before the batch gives up."""


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


def test_a_create_that_waited_for_a_node_takes_it_in_its_new_class(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rival that held the only node has placed on it meanwhile: it fits still, and the first wait is enough."""
    monkeypatch.setattr(create, "TRIES_MAX", 2)  # the first try passes the locked node, the second waits for it
    fleet = Fleet(database_url, slice_nodes=1)
    tenant = fleet.tenant()

    async def scene() -> None:
        async with working(database_url) as (context, catalogue):
            fleet.connection.execute("begin")
            fleet.connection.execute(
                "update nodes set free_mask = free_mask & ~1, fit_class = class_of_mask(free_mask & ~1, half_slots)"
            )
            creating = asyncio.create_task(create_allocations(context, catalogue, [create_of(tenant)]))
            await until_waiting(database_url)
            fleet.connection.execute("commit")
            (result,) = await creating
            assert isinstance(result, Answer), result
            assert result.status == 201

    asyncio.run(scene())
    assert fleet.one("select free_mask & 3 from nodes") == 0, "the second slot is its own"


Requests = Coroutine[Any, Any, Sequence[Any]]


async def statuses_after(
    url: str, gate: str, values: Sequence[object], forward: Requests, backward: Requests
) -> list[int]:
    """The statuses of two requests that name the same things in opposite orders, while the one in the middle is locked.

    The lock is released when both wait, so that each holds what it locks before the middle.
    """
    async with await psycopg.AsyncConnection.connect(url) as locking:
        await locking.execute(gate.encode(), values)
        both = [asyncio.ensure_future(forward)]
        await until_waiting(url, 1)
        both.append(asyncio.ensure_future(backward))
        await until_waiting(url, 2)
        await locking.rollback()
        return [result.status for results in await asyncio.gather(*both) for result in results]


def find_deadlocks_early(url: str) -> None:
    """For the sessions that begin from now on."""
    with psycopg.connect(url, autocommit=True) as connection:
        database = connection.info.dbname
        connection.execute(f"alter database {database} set deadlock_timeout = '{DEADLOCK_TIMEOUT}'".encode())


GATE_OF_KEY = (
    "insert into operations (scope, key, fingerprint, retire_after) values (%s, %s, %s, now() + interval '1 h')"
)
GATE_OF_QUOTA = "select from tenant_quotas where tenant_id = %s for update"
GATE_OF_NODE = "select from nodes where id = %s for update"
GATE_OF_RESOURCE = "select from resources where id = %s for update"


@pytest.mark.parametrize("locked", ["keys", "quotas"])
def test_lists_of_creates_in_opposite_orders_never_deadlock(database_url: str, locked: str) -> None:
    fleet = Fleet(database_url, slice_nodes=8)
    tenants = sorted((fleet.tenant(1000) for _ in range(6)), key=lambda tenant: tenant.id)
    find_deadlocks_early(database_url)

    async def scene() -> None:
        async with working(database_url) as (context, catalogue):
            for turn in range(ROUNDS):
                creates = opposite = [create_of(tenants[0], key=f"{turn}-{n}") for n in range(6)]
                gate = GATE_OF_KEY
                values: tuple[object, ...] = (tenants[0].id, f"{turn}-3", bytes(32))
                if locked == "quotas":
                    creates, opposite = ([create_of(tenant) for tenant in tenants] for _ in range(2))
                    gate, values = GATE_OF_QUOTA, (tenants[3].id,)
                statuses = await statuses_after(
                    database_url, gate, values,
                    create_all(context, catalogue, creates), create_all(context, catalogue, opposite[::-1]),
                )  # fmt: skip
                assert statuses == [201] * 12
                fleet.connection.execute(
                    "truncate claims, allocations, allocation_timeline, operations, outbox, network_addresses, published_ports"
                )
                fleet.connection.execute("update tenant_quotas set gpus_used = 0")
                fleet.connection.execute("select refresh_node_fit(id) from nodes")

    asyncio.run(scene())
    assert deadlocks(database_url) == 0


def test_lists_of_holds_in_opposite_orders_never_deadlock_on_their_keys(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=6)
    find_deadlocks_early(database_url)

    async def scene(client: ReservationClient) -> None:
        async def hold(asked: Sequence[HoldRequest]) -> Sequence[Any]:
            return await settled(await hold_all(client, asked))

        holds = [ask(client, f"seat-{n}", key=f"key-{n}") for n in range(6)]
        gate = (seeded.tenant_id, "key-3", bytes(32))
        statuses = await statuses_after(database_url, GATE_OF_KEY, gate, hold(holds), hold(holds[::-1]))
        assert statuses == [201] * 12

    as_client(database_url, seeded, scene)
    assert deadlocks(database_url) == 0


@pytest.mark.parametrize("locked", ["nodes", "resources"])
def test_bundles_in_opposite_orders_never_deadlock(database_url: str, locked: str) -> None:
    """Each bundle is held alone, so that it waits for every node and resource in turn."""
    seeded = seed_with_seats(database_url, seats=6, slice_nodes=6)
    find_deadlocks_early(database_url)
    nodes = sorted(node.id for node in seeded.nodes)

    async def scene(client: ReservationClient) -> None:
        async def hold(names: Sequence[str]) -> Sequence[Any]:
            return [await client.hold(*names)]

        for _ in range(ROUNDS):
            if locked == "nodes":
                first, second = ([f"slot:{node}:{slot}" for node in nodes] for slot in (0, 1))
                gate, middle, statuses = GATE_OF_NODE, str(nodes[3]), [201, 201]
            else:
                first = second = [f"seat-{n}" for n in range(6)]
                gate, middle, statuses = GATE_OF_RESOURCE, "seat-3", [201, 409]
            found = await statuses_after(database_url, gate, (middle,), hold(first), hold(second[::-1]))
            assert sorted(found) == statuses
            for (held,) in rows_of(database_url, "select id from reservations where state = 'hold'"):
                await client.cancel(held)

    as_client(database_url, seeded, scene)
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
    find_deadlocks_early(database_url)

    def creates_of(turn: int) -> list[Create]:
        return [_keyed(tenant, turn, n) for tenant in tenants for n in range(2)]

    async def scene() -> None:
        async with working(database_url, pool_size=12) as (context, catalogue):
            for turn in range(SHUFFLES):
                lists = [shuffled(chance, creates_of(turn)) for _ in range(6)]
                fresh = [
                    [create_of(tenant) for tenant in chance.sample(tenants, len(tenants)) for _ in range(2)]
                    for _ in range(4)
                ]
                await asyncio.gather(*(create_all(context, catalogue, one) for one in (*lists, *fresh)))
                assert fleet.overlaps() == 0
                fleet.connection.execute(
                    "truncate claims, allocations, allocation_timeline, operations, outbox, network_addresses, published_ports"
                )
                fleet.connection.execute("update tenant_quotas set gpus_used = 0")
                fleet.connection.execute("select refresh_node_fit(id) from nodes")

    asyncio.run(scene())
    assert deadlocks(database_url) == 0


def _keyed(tenant: Tenant, turn: int, n: int) -> Create:
    return create_of(tenant, key=f"{turn}-{n}")
