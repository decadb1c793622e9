"""What the sweepers find and do: bounded, the earliest first, judged again under the lock."""

from __future__ import annotations

import uuid

from orchestrator.allocations.queries import find_overdue_allocations
from orchestrator.allocations.states import AllocationState
from orchestrator.log.commands import raise_consumer_position
from orchestrator.log.queries import find_consumer_position
from orchestrator.nodes.commands.heartbeat import mark_node_offline
from orchestrator.nodes.queries import find_silent_nodes
from orchestrator.operations.commands import retire_operations
from orchestrator.operations.execution import Context
from tests.allocations.driving import release, row_of, rows_of, run_with
from tests.allocations.seeding import connect, create_allocation, seed


def test_silent_nodes_go_offline_once(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=4)
    silent, longest, longer, lively = (node.id for node in seeded.nodes)
    with connect(database_url) as connection:
        for node_id, seconds in ((silent, 60), (longest, 90), (longer, 75)):
            query = "update nodes set last_seen_at = clock_timestamp() - make_interval(secs => %s) where id = %s"
            connection.execute(query, (seconds, node_id))

    async def sweep(context: Context) -> None:
        assert await find_silent_nodes(context, 30, 1) == [longest]
        assert await find_silent_nodes(context, 30, 10) == [longest, longer, silent]
        assert await mark_node_offline(context, longest, 30)
        assert not await mark_node_offline(context, longest, 30)
        assert not await mark_node_offline(context, lively, 30)

    run_with(database_url, sweep)
    assert rows_of(database_url, "select id from nodes where not online") == [(longest,)]
    event = row_of(database_url, "select event_type, tenant_id, payload from outbox")
    assert (event["event_type"], event["tenant_id"], event["payload"]["node_id"]) == (
        "node.offline",
        None,
        str(longest),
    )


def test_overdue_allocations_come_earliest_first(database_url: str) -> None:
    seeded = seed(database_url)
    later = create_allocation(database_url, seeded, start_seconds=-5)
    earlier = create_allocation(database_url, seeded, start_seconds=-50)
    create_allocation(database_url, seeded)

    async def sweep(context: Context) -> None:
        found = await find_overdue_allocations(context, 0, 10)
        assert [one.allocation_id for one in found] == [earlier, later]
        assert {one.state for one in found} == {AllocationState.REQUESTED}
        assert [one.allocation_id for one in await find_overdue_allocations(context, 0, 1)] == [earlier]
        assert [one.allocation_id for one in await find_overdue_allocations(context, 30, 10)] == [earlier]

    run_with(database_url, sweep)


def test_answers_are_forgotten_after_their_window_and_not_before(database_url: str) -> None:
    seeded = seed(database_url)
    with connect(database_url) as connection:
        connection.execute(
            """insert into operations (scope, key, fingerprint, status, retire_after)
               select %s, 'k' || n, decode(repeat('00', 32), 'hex'), 201, clock_timestamp() - make_interval(secs => n)
               from generate_series(1, 5) n""",
            (seeded.tenant_id,),
        )
    allocation_id = create_allocation(database_url, seeded, key="lasting")

    async def sweep(context: Context) -> None:
        await release(context, seeded, allocation_id, "lasting-too")
        assert await retire_operations(context, 2) == 2
        assert {row[0] for row in rows_of(database_url, "select key from operations where key like 'k%%'")} == {
            "k1",
            "k2",
            "k3",
        }
        assert await retire_operations(context, 10) == 3

    run_with(database_url, sweep)
    assert {row[0] for row in rows_of(database_url, "select key from operations")} == {"lasting", "lasting-too"}


def test_a_position_never_goes_back(database_url: str) -> None:
    name = uuid.uuid4().hex

    async def positions(context: Context) -> None:
        assert await find_consumer_position(context, name) == 0
        for version in (7, 3):
            await raise_consumer_position(context, name, version)
        assert await find_consumer_position(context, name) == 7

    run_with(database_url, positions)
