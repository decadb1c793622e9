"""Back-to-back windows where the first overruns: the next one starts in the transaction that proves the units free (P6)."""

from __future__ import annotations

import ast
import asyncio
import json
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from orchestrator.allocations.commands.force import force_cleanup, force_release
from orchestrator.allocations.commands.provision import begin_provisioning
from orchestrator.allocations.commands.release import release_at_end
from orchestrator.allocations.commands.waits import fail_unstarted, start_waiting
from orchestrator.allocations.failures import Code
from orchestrator.allocations.outcomes import Superseded
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store import stated_cleanup
from orchestrator.operations.execution import Limits
from orchestrator.reservations.store.starting import find_nodes_to_start
from tests.allocations.driving import (
    ADMIN,
    allocation_of,
    claim_of,
    clean_up,
    provision,
    release,
    row_of,
    rows_of,
    task_of,
    transitions_of,
)
from tests.allocations.ending import broken
from tests.allocations.seeding import SLICE_SKU, connect
from tests.reservations.holding import ReservationClient, as_client, deadlocks, seed_with_seats
from tests.reservations.turning_over.consuming import back_to_back, consumed, events_of, soon, violations
from tests.support.command_sources import command_trees
from tests.support.waiting import wait_past


def test_freed_units_start_the_allocation_that_waits_for_them() -> None:
    """What closes a claim that may have been occupied passes its units on: each command, and what two commands share."""
    sources = {name: ast.unparse(tree) for name, tree in command_trees().items()}
    sources["clean_up"] = ast.unparse(ast.parse(Path(stated_cleanup.__file__).read_text()))
    assert {name for name, source in sources.items() if "clean_up(" in source} >= {"force_cleanup", "clean_up"}
    closing = {name for name, source in sources.items() if "close_claim(" in source}
    assert {"finish_release", "clean_up"} <= closing
    never_occupied = {"fail_unstarted"}
    assert {name for name in closing - never_occupied if "start_waiting(" not in sources[name]} == set()


def waits_of(url: str, allocation_id: UUID) -> str | None:
    waits: str | None = allocation_of(url, allocation_id)["waits_for"]
    return waits


def test_the_next_one_starts_in_the_transaction_of_the_proof(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        running, waiting = await back_to_back(client)
        assert (waits_of(database_url, waiting), claim_of(database_url, waiting)["occupied"]) == ("units", False)
        assert events_of(database_url, f"allocations/{waiting}") == ["provisioning.waiting"]
        assert await begin_provisioning(client.context, waiting, "wf") == Superseded(AllocationState.REQUESTED)
        assert violations(database_url) == []
        assert await release_at_end(client.context, running)
        assert waits_of(database_url, waiting) == "units", "the right has ended, but it may still be there"
        await clean_up(client.context, database_url, running)
        assert (waits_of(database_url, waiting), claim_of(database_url, waiting)["occupied"]) == ("worker", True)
        assert events_of(database_url, f"allocations/{waiting}") == ["provisioning.waiting", "provisioning.requested"]
        told_at, released_at, same = rows_of(
            database_url,
            """select e.occurred_at, a.released_at, e.xmin = a.xmin from outbox e, allocations a
               where e.event_type = 'provisioning.requested' and e.subject = %s and a.id = %s""",
            f"allocations/{waiting}",
            running,
        )[0]
        assert same, f"one transaction: {told_at} {released_at}"
        order = rows_of(
            database_url,
            "select event_type from outbox where subject in (%s, %s) order by id desc limit 2",
            f"allocations/{running}",
            f"allocations/{waiting}",
        )
        assert [row[0] for row in order] == ["provisioning.requested", "provisioning.releasing.completed"]
        assert claim_of(database_url, waiting)["fence"] > task_of(database_url, running)["fence"]
        assert violations(database_url) == []
        await provision(client.context, database_url, waiting)
        assert allocation_of(database_url, waiting)["state"] == "active"

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_an_admins_word_passes_the_units_on_as_well(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        running, waiting = await back_to_back(client)
        await force_release(client.context, client.operation(uuid4()), ADMIN, running, "it overran")
        await force_cleanup(client.context, client.operation(uuid4()), ADMIN, running, "looked; nothing there")
        assert waits_of(database_url, waiting) == "worker"

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
    assert broken(database_url) == {}


def test_a_waiting_allocation_can_be_released_without_a_task(database_url: str) -> None:
    """Its task would carry a newer fence than those of the allocation that occupies the units."""
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> UUID:
        running, waiting = await back_to_back(client)
        answer = await release(client.context, seeded, waiting)
        assert (answer.status, json.loads(answer.body)["status"]) == (202, "released")
        assert transitions_of(database_url, waiting) == ["requested", "releasing", "released"]
        assert rows_of(database_url, "select from node_tasks where allocation_id = %s", waiting) == []
        assert events_of(database_url, f"allocations/{waiting}") == [
            "provisioning.waiting", "provisioning.releasing.requested", "provisioning.releasing.completed",
        ]  # fmt: skip
        assert claim_of(database_url, running)["occupied"]
        await release(client.context, seeded, running)
        await clean_up(client.context, database_url, running)
        assert row_of(database_url, "select gpus_used from tenant_quotas")["gpus_used"] == 0
        return waiting

    waiting = as_client(database_url, seeded, way)
    assert violations(database_url) == []
    assert broken(database_url) == {}
    # Only a worker or an admin may release an allocation that occupied its units.
    with connect(database_url) as connection:
        connection.execute("update claims set occupied_from = lower(during) where owner_id = %s", (waiting,))
    assert f"allocation {waiting} was made released by system" in broken(database_url)["P8"]


def test_past_its_deadline_it_fails_with_a_code_and_leaves_the_units_alone(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        running, waiting = await back_to_back(client)
        assert await fail_unstarted(client.context, waiting) is None, "its deadline has not come"
        with connect(database_url) as connection:
            connection.execute("update allocations set waits_until = clock_timestamp() where id = %s", (waiting,))
        assert await fail_unstarted(client.context, waiting) is Code.UNITS_NOT_FREE
        row, claim = allocation_of(database_url, waiting), claim_of(database_url, waiting)
        assert (row["state"], row["failure_code"]) == ("failed", "units_not_free")
        assert (claim["closed_at"] is None, claim["occupied_from"]) == (False, None)
        assert claim_of(database_url, running)["occupied"]

    as_client(database_url, seeded, way, limits=Limits(units_seconds_max=5))
    assert violations(database_url) == []
    assert broken(database_url) == {}


@pytest.mark.parametrize(("lasts", "bound"), [(600.0, 5.0), (300.0, 3_600.0)])
def test_it_waits_no_longer_than_its_window_and_the_bound(database_url: str, lasts: float, bound: float) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        _, waiting = await back_to_back(client, lasts=lasts)
        row = allocation_of(database_url, waiting)
        waited = (row["waits_until"] - row["waits_since"]).total_seconds()
        assert waited == pytest.approx(5.0) if bound == 5.0 else row["waits_until"] == row["ends_at"]

    as_client(database_url, seeded, way, limits=Limits(units_seconds_max=bound))


def test_the_sweeper_starts_what_no_event_started(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        running, waiting = await back_to_back(client)
        node = seeded.nodes[0].id
        assert await start_waiting(client.context, node) == 0
        await release(client.context, seeded, running)
        with connect(database_url) as connection:
            # Closed, without a start event for the next one.
            connection.execute(
                """update claims set occupied = false, occupied_until = clock_timestamp(), closed_at = clock_timestamp(),
                   waits_for = null, waits_since = null, waits_until = null where owner_id = %s""",
                (running,),
            )
        started = await asyncio.gather(*(start_waiting(client.context, node) for _ in range(4)))
        assert sorted(started) == [0, 0, 0, 1]
        assert waits_of(database_url, waiting) == "worker"

    as_client(database_url, seeded, way)


def test_units_that_are_out_of_service_are_not_free(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        running, waiting = await back_to_back(client)
        node = seeded.nodes[0].id
        unit = row_of(database_url, "select lower(units) as unit from claims where owner_id = %s", waiting)["unit"]
        await release(client.context, seeded, running)
        with connect(database_url) as connection:
            connection.execute(
                "insert into slot_quarantines (node_id, slot_index, unit, reason, quarantined_by, source)"
                " select node_id, slot_index, unit, 'broken', 'worker:test', 'operator' from slots where unit = %s",
                (unit,),
            )
            connection.execute("select keep_slots_v2(%s)", (node,))
        await clean_up(client.context, database_url, running)
        assert await start_waiting(client.context, node) == 0
        async with client.context.database.reading() as reading:
            assert await find_nodes_to_start(reading, 10) == []
        assert waits_of(database_url, waiting) == "units"
        with connect(database_url) as connection:
            connection.execute(
                "update slot_quarantines set returned_at = now(), returned_by = 'operator:test', note = 'n'"
            )
            connection.execute("select keep_slots_v2(%s)", (node,))
        async with client.context.database.reading() as reading:
            assert await find_nodes_to_start(reading, 10) == [node]
        assert await start_waiting(client.context, node) == 1

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


@pytest.mark.full
def test_two_that_wait_for_parts_of_one_both_start_and_rivals_never_deadlock(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        change = soon(2)
        first = await client.held(client.slot(0), client.slot(1), ends_at=change)
        nexts = [await client.held(client.slot(index), starts_at=change) for index in (0, 1)]
        for one in (first, *nexts):
            await client.confirm(one)
        running = await consumed(client, first, sku=SLICE_SKU)
        await provision(client.context, client.url, running)
        await wait_past(change)
        waiting = [await consumed(client, one, sku=SLICE_SKU) for one in nexts]
        await release_at_end(client.context, running)
        await asyncio.gather(
            clean_up(client.context, database_url, running),
            *(start_waiting(client.context, seeded.nodes[0].id) for _ in range(3)),
            release(client.context, seeded, waiting[1]),
        )
        assert waits_of(database_url, waiting[0]) == "worker"
        assert allocation_of(database_url, waiting[1])["state"] in ("released", "releasing")

    as_client(database_url, seeded, way)
    assert deadlocks(database_url) == 0
    assert violations(database_url) == []
    assert broken(database_url) == {}
