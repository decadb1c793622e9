"""A batch skips items whose rows another transaction locks: these are deferred, and no other item waits."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from orchestrator.operations.execution import Deferred, Limits, Result
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import Problem
from orchestrator.reservations.commands.confirm import confirm_reservation
from tests.allocations.driving import rows_of
from tests.allocations.seeding import add_tenant, connect
from tests.reservations.holding import ReservationClient, as_client, seed_with_seats, violations
from tests.support.reservation_lists import ask, code_of, confirm_of, hold_all, settled
from tests.support.rival_sessions import take_key


async def told_now(result: Result | Deferred) -> str:
    """What one of a list becomes that had to go alone."""
    assert not isinstance(result, Answer | Problem)
    return code_of(await result.retry_alone())


def test_a_locked_quota_delays_its_own_tenant_alone(database_url: str) -> None:
    seeded = seed_with_seats(database_url)
    with connect(database_url) as operator:
        other = add_tenant(operator, "other", gpus_limit=8).tenant_id

    async def scene(client: ReservationClient) -> None:
        asked = [ask(client, client.slot(index)) for index in range(4)]
        for n in (1, 2):
            theirs = asked[n].hold
            asked[n] = replace(
                asked[n], hold=replace(theirs, tenant_id=other, operation=replace(theirs.operation, scope=other))
            )
        with connect(database_url) as rival:
            rival.execute("begin")
            rival.execute("select from tenant_quotas where tenant_id = %s for no key update", (other,))
            results = await hold_all(client, asked)
            assert [code_of(result) for result in results] == ["201", "deferred", "deferred", "201"]
            rival.execute("rollback")
        assert [code_of(result) for result in await settled(results)] == ["201"] * 4

    as_client(database_url, seeded, scene)
    assert violations(database_url) == []


def test_a_locked_key_delays_its_own_hold_alone(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=2)

    async def scene(client: ReservationClient) -> None:
        with connect(database_url) as rival:
            take_key(rival, client.seeded.tenant_id, "taken")
            results = await hold_all(client, [ask(client, "seat-0", key="taken"), ask(client, "seat-1")])
            assert await told_now(results[1]) == "201"
            rival.execute("rollback")
        assert await told_now(results[0]) == "201"

    as_client(database_url, seeded, scene)
    assert violations(database_url) == []


def test_a_locked_key_delays_its_own_refusal_alone(database_url: str) -> None:
    """The other items are answered at once."""
    seeded = seed_with_seats(database_url, seats=2)

    async def scene(client: ReservationClient) -> None:
        held = await client.held("seat-0")
        with connect(database_url) as rival:
            take_key(rival, client.seeded.tenant_id, "taken")
            asked = [ask(client, "seat-0", key="taken"), ask(client, "seat-0"), ask(client, "seat-1")]
            results = await hold_all(client, asked)
            assert [code_of(result) for result in results] == ["deferred", "deferred", "201"]
            assert await told_now(results[1]) == "resource_busy"
            confirms = [confirm_of(client, held, key="taken"), confirm_of(client, held, holder="other")]
            confirmed = await confirm_reservation(client.context, confirms)
            assert await told_now(confirmed[1]) == "holder_mismatch"
            rival.execute("rollback")
        assert await told_now(results[0]) == "resource_busy"

    as_client(database_url, seeded, scene)
    assert violations(database_url) == []


def test_a_locked_reservation_delays_its_own_confirm_alone(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=2)

    async def scene(client: ReservationClient) -> None:
        locked, free = await client.held("seat-0"), await client.held("seat-1")
        with connect(database_url) as rival:
            rival.execute("begin")
            rival.execute("select from reservations where id = %s for no key update", (locked,))
            results = await confirm_reservation(client.context, [confirm_of(client, locked), confirm_of(client, free)])
            assert [code_of(result) for result in results] == ["deferred", "200"]
            rival.execute("rollback")
        assert await told_now(results[0]) == "200"

    as_client(database_url, seeded, scene)
    assert violations(database_url) == []


def test_near_a_bound_a_list_has_no_room_of_its_own_while_it_waits_for_a_key(database_url: str) -> None:
    """Otherwise the batch and the transaction that holds the key and waits for a free row would deadlock."""
    seeded = seed_with_seats(database_url, seats=2)
    waiting_with_room = "select from pg_locks where locktype = 'advisory' and granted"

    async def scene(client: ReservationClient) -> None:
        with connect(database_url) as rival:
            take_key(rival, client.seeded.tenant_id, "b")
            asked = [ask(client, "seat-0", key="a"), ask(client, "seat-1", key="b")]
            trying = asyncio.create_task(hold_all(client, asked))
            while not trying.done():
                assert rows_of(database_url, waiting_with_room) == []
                await asyncio.wait([trying], timeout=0.01)
            results = await trying
            assert [code_of(result) for result in results] == ["deferred", "deferred"]
            assert await told_now(results[0]) == "201"
            rival.execute("rollback")
        assert await told_now(results[1]) == "201"

    as_client(database_url, seeded, scene, limits=Limits(holds_max=10))
    assert violations(database_url) == []
