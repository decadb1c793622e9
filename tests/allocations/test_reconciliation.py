"""Inventories compared with claims: differences are found and noted, and nothing is changed automatically."""

from __future__ import annotations

import uuid
from datetime import timedelta

from orchestrator.operations.execution import Context
from tests.allocations.driving import (
    clean_up,
    provision,
    release,
    row_of,
    rows_of,
    run_with,
)
from tests.allocations.reconciling import beat, end, kept, reconcile, slots_out_of_service
from tests.allocations.seeding import SLOTS, connect, create_allocation, seed, try_create


def test_what_ended_and_was_proven_is_an_orphan_where_it_still_is(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    ended, unknown = create_allocation(database_url, seeded, gpus=2), uuid.uuid4()

    async def way(context: Context) -> None:
        await end(context, database_url, seeded, ended)
        await beat(context, node, (ended, [0, 1]), (unknown, [5]))
        assert len(await reconcile(context)) == 2
        assert await reconcile(context) == [], "each is found once"

    run_with(database_url, way)
    found = rows_of(
        database_url, "select allocation_id, slots, fence, state, waits_for from node_orphans order by slots"
    )
    assert found == [(ended, [0, 1], 7, "reported", "operator"), (unknown, [5], 7, "reported", "operator")]
    assert slots_out_of_service(database_url) == [0, 1, 5]
    events = rows_of(
        database_url, "select payload ->> 'allocation_id' from outbox where event_type = 'node.orphan_found'"
    )
    assert {event[0] for event in events} == {str(ended), str(unknown)}
    assert rows_of(database_url, "select count(*) from audit where action = 'node.orphan_found'") == [(2,)]
    told = rows_of(database_url, "select allocation_id from allocation_timeline where code = 'orphan_found'")
    assert told == [(ended,)]
    assert kept(database_url) == []
    with connect(database_url) as connection:
        assert try_create(connection, seeded, gpus=8) is None, "the whole node is no longer to be had"
        assert try_create(connection, seeded, gpus=4) is not None
        held = connection.execute("select units from claims where closed_at is null").fetchone()
        assert held is not None
    assert kept(database_url) == []


def test_no_inventory_and_no_live_allocation_make_no_orphan(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    ended, failing, live = (create_allocation(database_url, seeded) for _ in range(3))

    async def way(context: Context) -> None:
        await provision(context, database_url, live)
        await provision(context, database_url, ended)
        await provision(context, database_url, failing)
        await release(context, seeded, failing)
        told = await beat(context, node, None)
        await release(context, seeded, ended)
        await clean_up(context, database_url, ended)
        assert await reconcile(context) == []
        # Gathered before the proof, whatever it arrived after.
        await beat(context, node, (ended, [0]), (live, [1]), (failing, [2]), after=told)
        assert await reconcile(context) == []
        # A time that the server never returned.
        await beat(context, node, (ended, [0]), after=told + timedelta(days=1))
        assert await reconcile(context) == []
        await beat(context, node, None)
        assert await reconcile(context) == []
        await beat(context, node, (live, [1]), (failing, [2]))
        assert await reconcile(context) == []

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == []


def test_a_later_report_of_an_older_look_moves_nothing_back(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id

    async def way(context: Context) -> None:
        earlier = await beat(context, node, None)
        await beat(context, node)
        before = row_of(database_url, "select inventory, inventory_after from nodes")
        await beat(context, node, (uuid.uuid4(), [0]), after=earlier)
        assert row_of(database_url, "select inventory, inventory_after from nodes") == before
        assert await reconcile(context) == []

    run_with(database_url, way)


def test_an_orphan_without_known_slots_keeps_the_whole_node(database_url: str) -> None:
    seeded = seed(database_url)

    async def way(context: Context) -> None:
        await beat(context, seeded.nodes[0].id, (uuid.uuid4(), []))
        await reconcile(context)

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == list(range(SLOTS))
    with connect(database_url) as connection:
        assert try_create(connection, seeded) is None


def test_what_is_missing_on_its_node_is_reported_and_nothing_else_happens(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    missing, there = create_allocation(database_url, seeded), create_allocation(database_url, seeded)

    kept_as_they_are = (
        "select id, state, claim_id, node_id, waits_for, waits_until, releasing_at from allocations order by id"
    )

    def codes() -> list[str]:
        found = rows_of(database_url, "select code from allocation_timeline where code like '%%on_node' order by id")
        return [row[0] for row in found]

    async def way(context: Context) -> None:
        before_active = await beat(context, node, None)
        for allocation_id in (missing, there):
            await provision(context, database_url, allocation_id)
        await beat(context, node, after=before_active)
        await reconcile(context)
        assert rows_of(database_url, "select from allocation_absences") == [], "the node looked before it was active"
        states = rows_of(database_url, kept_as_they_are)
        for inventories in (1, 2, 3, 4):
            await beat(context, node, (there, [1]))
            for _ in range(2):
                await reconcile(context)
            assert codes() == (["missing_on_node"] if inventories >= 3 else [])
            counted = row_of(database_url, "select allocation_id, inventories from allocation_absences")
            assert counted == {"allocation_id": missing, "inventories": inventories}
        for _ in range(2):
            await beat(context, node, None)
            await reconcile(context)
        assert rows_of(database_url, kept_as_they_are) == states
        await beat(context, node, (there, [1]), (missing, [0]))
        await reconcile(context)
        assert codes() == ["missing_on_node", "back_on_node"]
        assert rows_of(database_url, "select from allocation_absences") == []
        for _ in range(3):
            await beat(context, node, (there, [1]))
            await reconcile(context)
        assert codes()[2:] == ["missing_on_node"]
        await release(context, seeded, missing)
        await reconcile(context)
        assert rows_of(database_url, "select from allocation_absences") == []

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == []
    assert kept(database_url) == []
