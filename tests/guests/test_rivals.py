"""Verbs beside a release, beside each other, and after the loss of their workflow."""

from __future__ import annotations

import asyncio

from orchestrator.allocations.commands.waits import take_over_wait
from orchestrator.allocations.outcomes import Begun, Superseded
from orchestrator.allocations.queries import find_overdue_allocations, find_waiters
from orchestrator.allocations.states import AllocationState, Verb
from orchestrator.allocations.store.due import Overdue, Waiter
from orchestrator.operations.execution import Context
from tests.allocations.driving import (
    clean_up,
    completed,
    events_of,
    release,
    report,
    rows_of,
    run_with,
    task_of,
)
from tests.allocations.invariants import violations
from tests.allocations.seeding import connect, seed
from tests.guests.changing import ACTIVE, RESULTS, RUNS, active
from tests.model.log import sequence
from worker.sweepers.lost_workflows import FIRST_POSITION, rescue_id_of, responsible_workflow_ids


def test_a_release_supersedes_a_verb_in_each_of_its_steps(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=1)

    async def way(context: Context) -> None:
        for steps in range(3):
            guest = await active(context, database_url, seeded)
            await guest.order(Verb.REBOOT)
            if steps > 0:
                await guest.begin()
            task = task_of(database_url, guest.id)
            if steps > 1:
                await guest.report(completed(task, RUNS))
            assert (await release(context, seeded, guest.id)).status == 202
            assert await guest.begin() == Superseded(AllocationState.RELEASING)
            assert await guest.finish() == Superseded(AllocationState.RELEASING)
            assert (guest.row["guest_state"], guest.row["guest_verb"]) == (None, None)
            if steps == 1:
                late = await report(context, task, completed(task, RUNS))
                assert (late.applied, late.reason) == (False, "superseded")
            await clean_up(context, database_url, guest.id)
            assert guest.row["state"] == "released"
            assert violations(database_url) == []

    run_with(database_url, way)


def test_of_two_verbs_at_once_one_is_ordered(database_url: str) -> None:
    seeded = seed(database_url)

    async def way(context: Context) -> None:
        guest = await active(context, database_url, seeded)
        before = 0
        for _ in range(6):
            answers = await asyncio.gather(
                *(guest.order(verb) for verb in (Verb.STOP, Verb.REBOOT, Verb.REBUILD, Verb.STOP))
            )
            assert {answer.status for answer in answers} <= {202, 409}
            ordered = events_of(database_url, guest.id).count("allocation.verb_requested")
            assert ordered == before + 1
            verb = Verb(guest.row["guest_verb"])
            before = ordered + (verb is Verb.STOP)
            await guest.begin()
            await guest.report(completed(task_of(database_url, guest.id), RESULTS[verb]))
            await guest.finish()
            if guest.row["guest_state"] == "stopped":
                await guest.perform(Verb.START)
        assert violations(database_url) == []

    run_with(database_url, way)


def test_a_verb_and_a_release_at_once_leave_one_story(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=1)

    async def way(context: Context) -> None:
        for _ in range(6):
            guest = await active(context, database_url, seeded)
            await guest.order(Verb.REBOOT)
            begun, released = await asyncio.gather(guest.begin(), release(context, seeded, guest.id))
            assert released.status == 202
            assert isinstance(begun, Begun | Superseded)
            assert violations(database_url) == []
            await clean_up(context, database_url, guest.id)
            assert guest.row["state"] == "released"

    run_with(database_url, way)


def test_a_verb_that_has_not_begun_has_no_end(database_url: str) -> None:
    """The workflow of the verb before it may wake late; its completed task ends nothing of the next verb."""
    seeded = seed(database_url)

    async def way(context: Context) -> None:
        guest = await active(context, database_url, seeded)
        await guest.perform(Verb.STOP)
        await guest.order(Verb.START)
        assert await guest.finish() == Superseded(ACTIVE)
        assert (guest.row["guest_state"], guest.row["guest_verb"]) == ("stopped", "start")

    run_with(database_url, way)


def test_a_lost_workflow_of_a_verb_is_found_and_replaced(database_url: str) -> None:
    seeded = seed(database_url)

    async def waiters(context: Context) -> list[Waiter]:
        return await find_waiters(context, consumer="worker", patience_seconds=0.0, after=FIRST_POSITION, limit=10)

    async def way(context: Context) -> None:
        guest = await active(context, database_url, seeded)
        assert await waiters(context) == [], "an active allocation waits for its tenant without a deadline"
        await guest.order(Verb.REBOOT)
        (ordered,) = await waiters(context)
        assert responsible_workflow_ids(ordered) is None, "its event is not in the log yet"
        assert rescue_id_of(ordered).startswith("verb-overdue-")
        await guest.begin("verb-lost")
        (begun,) = await waiters(context)
        assert responsible_workflow_ids(begun) == ["verb-lost"]
        assert await take_over_wait(context, begun, rescue_id_of(begun))
        assert task_of(database_url, guest.id)["notify"] == rescue_id_of(begun)
        assert isinstance(await guest.begin(rescue_id_of(begun)), Begun)
        assert await find_overdue_allocations(context, -10_000.0, 10) == [Overdue(guest.id, ACTIVE)]

    run_with(database_url, way)


def test_the_sweeper_finds_the_event_that_starts_the_workflow_of_a_verb(database_url: str) -> None:
    seeded = seed(database_url)

    async def way(context: Context) -> None:
        guest = await active(context, database_url, seeded)
        await guest.order(Verb.REBOOT)
        with connect(database_url) as connection:
            sequence(connection)
        (waiter,) = await find_waiters(context, consumer="worker", patience_seconds=0.0, after=FIRST_POSITION, limit=10)
        (event,) = rows_of(
            database_url, "select event_id, version from log where event_type = 'allocation.verb_requested'"
        )
        assert (waiter.event_type, waiter.event_id, waiter.event_version) == ("allocation.verb_requested", *event)
        assert responsible_workflow_ids(waiter) is None, "the consumer has not acknowledged it"

    run_with(database_url, way)
