"""Concurrent transactions on one allocation: exactly one wins, the other returns the resulting state (DESIGN §4; TRAPS)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from orchestrator.allocations.commands.force import force_release
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.commands.release import release_allocation
from orchestrator.allocations.outcomes import Begun, Concluded, Superseded
from orchestrator.allocations.states import AllocationState
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Operation
from orchestrator.problems import InvalidState, NotFound, OperationConflict
from tests.allocations.driving import (
    ADMIN,
    PROVISIONED,
    TENANT,
    allocation_of,
    clean_up,
    completed,
    events_of,
    failed,
    operation,
    provision,
    release,
    report,
    rows_of,
    run_with,
    task_of,
    transitions_of,
)
from tests.allocations.invariants import violations
from tests.allocations.seeding import add_tenant, connect, create_allocation, create_many, seed
from tests.support.rival_sessions import until_waiting

ROUNDS = 8


def test_cancel_and_finish_cannot_both_win(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=1)
    ids = create_many(database_url, seeded, ROUNDS)

    async def way(context: Context) -> None:
        for allocation_id in ids:
            await begin_provisioning(context, allocation_id, "wf")
            task = task_of(database_url, allocation_id)
            await report(context, task, completed(task, PROVISIONED))
            finished, answer = await asyncio.gather(
                finish_provisioning(context, allocation_id), release(context, seeded, allocation_id)
            )
            assert answer.status == 202
            assert finished in (Concluded(AllocationState.ACTIVE), Superseded(AllocationState.RELEASING))
            ways = transitions_of(database_url, allocation_id)
            won = isinstance(finished, Concluded)
            assert ways == ["requested", "provisioning", *(["active"] if won else []), "releasing"]
            active_at = allocation_of(database_url, allocation_id)["active_at"]
            assert (active_at is not None) == won

    run_with(database_url, way)
    assert violations(database_url) == []


@pytest.mark.parametrize("first", ["release", "finish"])
def test_after_the_wait_for_the_lock_the_other_effect_is_seen(database_url: str, first: str) -> None:
    """Both wait behind a third transaction; the order of arrival decides, and the later one works on what it finds."""
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context, holder: psycopg.AsyncConnection[object]) -> list[object]:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(database_url, allocation_id)
        await report(context, task, completed(task, PROVISIONED))
        releasing: Coroutine[Any, Any, object] = release(context, seeded, allocation_id)
        finishing: Coroutine[Any, Any, object] = finish_provisioning(context, allocation_id)
        in_order = (releasing, finishing) if first == "release" else (finishing, releasing)
        await holder.execute("select from nodes for no key update")
        ahead = asyncio.create_task(in_order[0])
        await until_waiting(database_url, 1)
        behind = asyncio.create_task(in_order[1])
        await until_waiting(database_url, 2)
        await holder.rollback()
        return [await ahead, await behind]

    async def main(context: Context) -> list[object]:
        async with await psycopg.AsyncConnection.connect(database_url) as holder:
            return await way(context, holder)

    ahead, behind = run_with(database_url, main)
    if first == "release":
        assert behind == Superseded(AllocationState.RELEASING)
    else:
        assert ahead == Concluded(AllocationState.ACTIVE)
    assert allocation_of(database_url, allocation_id)["state"] == "releasing"
    assert violations(database_url) == []


def test_the_time_of_a_task_begins_when_its_locks_were_had(database_url: str) -> None:
    """Waiting for a lock takes nothing from the node's time."""
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def main(context: Context) -> datetime:
        async with await psycopg.AsyncConnection.connect(database_url) as holder:
            await holder.execute("select from nodes for no key update")
            beginning = asyncio.create_task(begin_provisioning(context, allocation_id, "wf"))
            await until_waiting(database_url, 1)
            row = await (await holder.execute("select clock_timestamp()")).fetchone()
            assert row is not None
            let_go: datetime = row[0]
            await holder.rollback()
            await beginning
            return let_go + timedelta(seconds=context.limits.provision_seconds_max)

    full_time = run_with(database_url, main)
    assert task_of(database_url, allocation_id)["expires_at"] >= full_time
    assert allocation_of(database_url, allocation_id)["waits_until"] >= full_time


def test_concurrent_releases_make_one_transition_and_one_event(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await provision(context, database_url, allocation_id)
        one_key = [release(context, seeded, allocation_id, "same") for _ in range(4)]
        answers = await asyncio.gather(*one_key, *(release(context, seeded, allocation_id) for _ in range(4)))
        assert {answer.status for answer in answers} == {202}
        assert {json.loads(answer.body)["status"] for answer in answers} == {"releasing"}
        assert len({answer.body for answer in answers[:4]}) == 1
        await clean_up(context, database_url, allocation_id)
        again = await release(context, seeded, allocation_id, "same")
        assert again.replayed
        assert json.loads(again.body)["status"] == "releasing", "the first answer, for ever"
        assert json.loads((await release(context, seeded, allocation_id)).body)["status"] == "released"

    run_with(database_url, way)
    assert events_of(database_url, allocation_id).count("provisioning.releasing.requested") == 1
    assert violations(database_url) == []


def test_refused_releases_are_remembered_and_change_nothing(database_url: str) -> None:
    seeded = seed(database_url)
    with connect(database_url) as connection:
        stranger = add_tenant(connection, "stranger")
    allocation_id = create_allocation(database_url, seeded)
    failed_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        foreign = operation(stranger)
        refused = await release_allocation(context, foreign, TENANT, stranger.tenant_id, allocation_id)
        assert (refused.status, json.loads(refused.body)["code"]) == (404, NotFound.code)
        assert (await release_allocation(context, foreign, TENANT, stranger.tenant_id, allocation_id)).replayed
        other_content = Operation(foreign.scope, foreign.key, b"\1" * 32, 3600.0)
        with pytest.raises(OperationConflict):
            await release_allocation(context, other_content, TENANT, stranger.tenant_id, allocation_id)
        await begin_provisioning(context, failed_id, "wf")
        task = task_of(database_url, failed_id)
        await report(context, task, failed(task))
        await finish_provisioning(context, failed_id)
        answer = await release(context, seeded, failed_id)
        assert (answer.status, json.loads(answer.body)["state"]) == (409, "failed")
        await clean_up(context, database_url, failed_id)
        forced = await force_release(context, operation(seeded), ADMIN, failed_id, "nothing left")
        assert (forced.status, json.loads(forced.body)["code"]) == (409, InvalidState.code)

    run_with(database_url, way)
    assert allocation_of(database_url, allocation_id)["state"] == "requested"
    assert violations(database_url) == []


def test_one_event_delivered_to_two_workers_issues_one_task(database_url: str) -> None:
    seeded = seed(database_url)
    allocation_id = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        begun = await asyncio.gather(*(begin_provisioning(context, allocation_id, "wf") for _ in range(4)))
        assert {type(one) for one in begun} == {Begun}
        assert len({one.task_id for one in begun if isinstance(one, Begun)}) == 1

    run_with(database_url, way)
    assert rows_of(database_url, "select count(*) from node_tasks") == [(1,)]


def test_releases_on_one_node_from_many_connections_never_deadlock(database_url: str) -> None:
    seeded = seed(database_url)
    ids = create_many(database_url, seeded, 8)
    troubles: list[Exception] = []

    def rival() -> None:
        async def way(context: Context) -> None:
            await asyncio.gather(*(release(context, seeded, allocation_id) for allocation_id in ids))

        try:
            run_with(database_url, way)
        except Exception as error:  # noqa: BLE001 - whatever it is, the main thread wants to see it
            troubles.append(error)

    threads = [threading.Thread(target=rival) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert troubles == []
    assert rows_of(database_url, "select distinct state from allocations") == [("releasing",)]
    deadlocks = rows_of(database_url, "select deadlocks from pg_stat_database where datname = current_database()")
    assert deadlocks == [(0,)]
    assert violations(database_url) == []
