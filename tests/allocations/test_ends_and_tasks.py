"""Another end and the tasks of the allocation: its own stay valid under the successor, stale ones do not count (P7)."""

from __future__ import annotations

from uuid import UUID

import pytest

from node_agent.protocol import FailureCode, Phase, ProgressReport, ResultAnswer
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.commands.task_results import record_task_progress
from orchestrator.allocations.commands.waits import take_over_wait
from orchestrator.allocations.outcomes import Begun, Concluded, Retry, Superseded
from orchestrator.allocations.queries import find_waiters
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.waits import Wait
from orchestrator.operations.execution import Context, Limits
from tests.allocations.driving import (
    PROVISIONED,
    allocation_of,
    claim_of,
    clean_up,
    completed,
    failed,
    provision,
    release,
    report,
    row_of,
    rows_of,
    task_of,
    transitions_of,
)
from tests.allocations.ending import at, broken, ends
from tests.allocations.invariants import violations
from tests.allocations.seeding import connect, create_allocation
from tests.reservations.holding import ReservationClient, as_client, seed_with_seats
from tests.reservations.turning_over.consuming import soon, starting
from tests.support.waiting import wait_past
from worker.sweepers.lost_workflows import FIRST_POSITION
from worker.sweepers.reservation_starter import ReservationStarter

APPLIED = ResultAnswer(applied=True)
SUPERSEDED = ResultAnswer(applied=False, reason="superseded")
CONSUMER = "berth-worker"


async def say(context: Context, task: dict[str, object]) -> bool:
    """Report a phase of the task as its node would; whether it counted."""
    phases = [Phase(phase="boot", detail="", seconds_ago=0.0)]
    progress = ProgressReport(fence=int(str(task["fence"])), phases=phases)
    return await record_task_progress(context, UUID(str(task["node_id"])), UUID(str(task["id"])), progress)


@pytest.mark.parametrize("times", [1, 3])
def test_a_provision_that_runs_goes_on(database_url: str, times: int) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = create_allocation(database_url, seeded, ends_at=at(600))
        assert isinstance(await begin_provisioning(client.context, made, "wf"), Begun)
        task = task_of(database_url, made)
        for step in range(times):
            await ends(client, made, at(900 + step))
        claim = claim_of(database_url, made)
        assert claim["fence"] > task["fence"] == claim["inherited_fence"]
        assert broken(database_url) == {}
        assert await say(client.context, task)
        again = await begin_provisioning(client.context, made, "wf")
        assert isinstance(again, Begun)
        assert (again.task_id, again.repeated) == (task["id"], True)
        assert await report(client.context, task, completed(task, PROVISIONED)) == APPLIED
        assert isinstance(await finish_provisioning(client.context, made), Concluded)
        assert allocation_of(database_url, made)["state"] == "active"
        assert claim_of(database_url, made) == claim
        await release(client.context, seeded, made)
        after = claim_of(database_url, made)
        assert (after["fence"] > claim["fence"], after["inherited_fence"]) == (True, None)
        await clean_up(client.context, database_url, made)
        assert transitions_of(database_url, made) == ["requested", "provisioning", "active", "releasing", "released"]

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
    assert broken(database_url) == {}


def test_a_provision_that_begins_after_it_has_the_fence_of_its_event(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = create_allocation(database_url, seeded, ends_at=at(600))
        await ends(client, made, at(900))
        with connect(database_url) as connection:
            connection.execute("select log_advance(1000)")
        (waiter,) = await find_waiters(
            client.context, consumer=CONSUMER, patience_seconds=0, after=FIRST_POSITION, limit=10
        )
        requested = row_of(
            database_url, "select event_id, payload from log where event_type = 'provisioning.requested'"
        )
        assert (waiter.event_id, waiter.fence) == (requested["event_id"], requested["payload"]["fence"])
        assert waiter.waits_for is Wait.WORKER
        assert await take_over_wait(client.context, waiter, "rescue")
        await provision(client.context, database_url, made)
        assert task_of(database_url, made)["fence"] == requested["payload"]["fence"]
        assert allocation_of(database_url, made)["state"] == "active"
        await ends(client, made, at(300))
        await release(client.context, seeded, made)
        await clean_up(client.context, database_url, made)

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
    assert broken(database_url) == {}


def test_a_wait_is_not_taken_over_with_what_was_read_before(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = create_allocation(database_url, seeded)
        await begin_provisioning(client.context, made, "wf")
        (before,) = await find_waiters(
            client.context, consumer=CONSUMER, patience_seconds=0, after=FIRST_POSITION, limit=10
        )
        await ends(client, made, at(900))
        assert not await take_over_wait(client.context, before, "rescue"), "its row changed"
        (now,) = await find_waiters(
            client.context, consumer=CONSUMER, patience_seconds=0, after=FIRST_POSITION, limit=10
        )
        assert await take_over_wait(client.context, now, "rescue")

    as_client(database_url, seeded, way)


def test_a_second_attempt_is_issued_under_a_new_fence_and_the_first_one_counts_no_more(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = create_allocation(database_url, seeded, ends_at=at(600))
        await begin_provisioning(client.context, made, "wf")
        first = task_of(database_url, made)
        await ends(client, made, at(900))
        swapped = claim_of(database_url, made)
        await report(client.context, first, failed(first, FailureCode.LEASE_CONFLICT))
        assert isinstance(await finish_provisioning(client.context, made), Retry)
        await ends(client, made, at(1_000))
        await begin_provisioning(client.context, made, "wf")
        second, claim = task_of(database_url, made), claim_of(database_url, made)
        assert second["fence"] == claim["fence"] > swapped["fence"]
        assert claim["inherited_fence"] is None
        assert await say(client.context, first) is False
        await ends(client, made, at(1_100))
        assert claim_of(database_url, made)["inherited_fence"] == second["fence"]
        assert await report(client.context, second, completed(second, PROVISIONED)) == APPLIED
        assert isinstance(await finish_provisioning(client.context, made), Concluded)

    as_client(database_url, seeded, way, limits=Limits(provision_retry_first_seconds=0.0))
    assert violations(database_url) == []
    assert broken(database_url) == {}


def test_a_task_from_before_the_release_never_counts_again(database_url: str) -> None:
    """Also if its row still said that it is live: the fence refuses it without the task's state."""
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = create_allocation(database_url, seeded, ends_at=at(600))
        await begin_provisioning(client.context, made, "wf")
        task = task_of(database_url, made)
        await ends(client, made, at(900))
        await release(client.context, seeded, made)
        for state in ("superseded", "dispatched"):
            with connect(database_url) as connection:
                connection.execute(
                    "update node_tasks set state = %s, finished_at = case when %s = 'dispatched' then null else finished_at end",
                    (state, state),
                )
            assert await report(client.context, task, completed(task, PROVISIONED)) == SUPERSEDED
            assert await say(client.context, task) is False
        with connect(database_url) as connection:
            connection.execute("update node_tasks set state = 'superseded', finished_at = clock_timestamp()")
        assert await finish_provisioning(client.context, made) == Superseded(AllocationState.RELEASING)
        await clean_up(client.context, database_url, made)

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_a_task_of_the_allocation_before_on_these_units_is_refused(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        earlier = create_allocation(database_url, seeded, gpus=8)
        await begin_provisioning(client.context, earlier, "wf")
        stale = task_of(database_url, earlier)
        await ends(client, earlier, at(600))
        await release(client.context, seeded, earlier)
        await clean_up(client.context, database_url, earlier)
        made = create_allocation(database_url, seeded, gpus=8, ends_at=at(600))
        await begin_provisioning(client.context, made, "wf")
        await ends(client, made, at(900))
        before = allocation_of(database_url, made)
        assert await report(client.context, stale, completed(stale, PROVISIONED)) == SUPERSEDED
        assert await say(client.context, stale) is False
        assert allocation_of(database_url, made) == before
        task = task_of(database_url, made)
        assert await report(client.context, task, completed(task, PROVISIONED)) == APPLIED

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
    assert broken(database_url) == {}


def test_every_fence_of_an_allocation_is_newer_than_those_of_its_units_before(database_url: str) -> None:
    """A node refuses a task with a fence older than the newest that it has seen for the units."""
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        fences: list[int] = []
        for _ in range(2):
            made = create_allocation(database_url, seeded, gpus=8, ends_at=at(600))
            await ends(client, made, at(900))
            await provision(client.context, database_url, made)
            fences.append(task_of(database_url, made)["fence"])
            await ends(client, made, None)
            await release(client.context, seeded, made)
            await clean_up(client.context, database_url, made)
            fences.append(task_of(database_url, made)["fence"])
        assert fences == sorted(set(fences))
        stored = [fence for (fence,) in rows_of(database_url, "select fence from claims order by id")]
        assert len(set(stored)) == len(stored) == 6

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
    assert broken(database_url) == {}


def test_what_was_moved_has_the_right_from_the_move_on_also_after_another_end(database_url: str) -> None:
    """Its window began before the move, while another allocation held the units that it was moved to."""
    seeded = seed_with_seats(database_url, slice_nodes=2)

    async def way(client: ReservationClient) -> None:
        starts_at = soon()
        held = await starting(client, each=8, starts_at=starts_at, ends_at=at(600))
        left = row_of(database_url, "select node_id from claims where owner_id = %s", held)["node_id"]
        with connect(database_url) as connection:
            connection.execute("update nodes set state = 'cordoned' where id = %s", (left,))
        await wait_past(starts_at)
        before = create_allocation(database_url, seeded, gpus=8)
        await provision(client.context, database_url, before)
        await release(client.context, seeded, before)
        await clean_up(client.context, database_url, before)
        await ReservationStarter(client.context, client.catalogue, 10).start_due()
        assert client.state(held) == "consumed"
        ((made,),) = rows_of(database_url, "select id from allocations where reservation_id = %s", held)
        assert allocation_of(database_url, made)["node_id"] != left
        await ends(client, made, at(900))
        await provision(client.context, database_url, made)

    as_client(database_url, seeded, way)
    assert broken(database_url) == {}
