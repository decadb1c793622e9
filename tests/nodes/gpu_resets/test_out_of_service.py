"""A GPU is reset only while its slot, and those of the GPUs reset with it, are out of service, and they stay so meanwhile."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from typing import Any

import pytest

from orchestrator.maintenance.commands.advance import advance_window
from orchestrator.maintenance.commands.windows import end_maintenance
from orchestrator.maintenance.states import WindowState
from orchestrator.nodes.commands.gpu_resets import Advanced, advance_gpu_reset
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from tests.allocations.driving import ADMIN, clean_up, completed, provision, release, report, row_of, rows_of, run_with
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import SLOTS, connect, create_allocation, seed, try_create
from tests.at_length import at_length
from tests.discovery.topologies import gpu, topology
from tests.nodes.answers import body_of, refusal_of
from tests.nodes.burn_ins.running import ask as ask_for_burn_in
from tests.nodes.gpu_resets.running import (
    KEPT,
    answer,
    ask,
    bring_back,
    issue,
    passed_through,
    ready,
    reset_row,
    reset_task,
    results,
    take_out,
)

WINDOW = """
with w as (
    insert into maintenance_windows (starts_at, ends_at, reason, state, started_at, waits_for, waits_since, waits_until)
    select s - interval '1 h', s + make_interval(secs => %s), 'm', 'active', s, 'end', s, s + make_interval(secs => %s)
    from (select clock_timestamp() as s) now returning id
), u as (
    insert into maintenance_units (window_id, node_id, units)
    select w.id, s.node_id, range_agg(int8range(s.unit, s.unit + 1)) from w, slots s
    where s.node_id = %s and s.slot_index = any (%s) group by w.id, s.node_id returning window_id
) select window_id from u
"""


def window(url: str, node: uuid.UUID, slots: list[int], seconds: float = 3_600.0) -> uuid.UUID:
    """An active window that has these slots for so long."""
    with connect(url) as connection:
        row = connection.execute(WINDOW, (seconds, seconds, node, slots)).fetchone()
        assert row is not None
        connection.execute("select claim_maintenance(%s, %s)", (row[0], node))
        found: uuid.UUID = row[0]
        return found


def end_now(url: str, window_id: uuid.UUID) -> None:
    """As if the time of the window were over."""
    with connect(url) as connection:
        connection.execute(
            "update maintenance_windows set (ends_at, waits_until) = (select s, s from (select clock_timestamp() as s) n)"
            " where id = %s",
            (window_id,),
        )


def free(url: str, node: uuid.UUID) -> int:
    count: int = row_of(url, "select bit_count(free_mask::bit(64)) as free from nodes where id = %s", node)["free"]
    return count


def test_a_slot_in_service_and_one_of_a_tenant_are_not_reset(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    mine = create_allocation(database_url, seeded, gpus=1)

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        await provision(context, database_url, mine)
        await take_out(context, node, 0)
        for slot, why in ((0, "slot 0: a tenant holds it"), (5, "slot 5: is in service")):
            refused = await ask(context, node, slot)
            assert refusal_of(refused)[:2] == (409, "gpus_in_service")
            assert why in body_of(refused)["detail"]
            assert body_of(refused)["slots"] == [slot]
        await release(context, seeded, mine)
        await clean_up(context, database_url, mine)
        assert (await ask(context, node, 0)).status == 200

    run_with(database_url, way)


def test_gpus_that_nvlink_connects_are_reset_together_or_not(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node, passed_through(1, 3, 6))
        await take_out(context, node, 3, 6)
        refused = await ask(context, node)
        assert (body_of(refused)["slots"], refusal_of(refused)[:2]) == ([1], (409, "gpus_in_service"))
        await take_out(context, node, 1, 0)
        assert body_of(await ask(context, node))["slots"] == [1, 3, 6]
        await issue(context, node)
        assert await answer(context, database_url, node, results([1, 3, 6])) is Advanced.RESET
        assert body_of(await ask(context, node, 0))["slots"] == [0]

    run_with(database_url, way)


def test_a_slot_does_not_return_while_its_gpu_is_reset(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        await take_out(context, node, 3, 4)
        await ask(context, node)
        assert (await bring_back(context, node, 4)).status == 200
        for override in (False, True):
            refused = await bring_back(context, node, 3, without_burn_in=override)
            assert refusal_of(refused) == (409, "invalid_state", "gpu_reset")
        await issue(context, node)
        assert refusal_of(await bring_back(context, node, 3)) == (409, "invalid_state", "gpu_reset")
        await answer(context, database_url, node, results([3]))
        assert (await bring_back(context, node, 3)).status == 200

    run_with(database_url, way)


@pytest.mark.parametrize("turn", at_length(range(4), [0, 1]))
def test_a_return_and_a_request_at_once_never_both_succeed(database_url: str, turn: int) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        await take_out(context, node, 3)
        commands = [ask(context, node), bring_back(context, node, 3), ask(context, node), bring_back(context, node, 3)]
        answers = await asyncio.gather(*(commands[turn:] + commands[:turn]))
        by_command = [answers[(index - turn) % 4] for index in range(4)]
        requested = 200 in (by_command[0].status, by_command[2].status)
        returned = 200 in (by_command[1].status, by_command[3].status)
        assert requested != returned
        if returned:
            assert await advance_gpu_reset(context, node, KEPT) is None

    run_with(database_url, way, pool_size=8)


CLAIMS_OF_TENANTS = "select count(*) from claims where owner_kind = 'allocation' and closed_at is null"
TASKS = "select count(*) from node_tasks where type = 'diag.gpu_reset'"


@pytest.mark.parametrize("turn", at_length(range(6), [0, 1]))
def test_creates_a_return_and_a_request_at_once_give_the_slot_to_one(database_url: str, turn: int) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id

    async def create() -> bool:
        def committed() -> bool:
            with connect(database_url) as connection:
                return try_create(connection, seeded) is not None

        return await asyncio.to_thread(committed)

    async def way(context: Context) -> tuple[bool, bool, bool]:
        await ready(context, database_url, node)
        await take_out(context, node, *range(SLOTS))
        commands: list[Coroutine[Any, Any, Answer | bool | Advanced | None]] = [
            create(), bring_back(context, node, 3), create(), ask(context, node), create(),
            advance_gpu_reset(context, node, KEPT),
        ]  # fmt: skip
        first, last = commands[turn:], commands[:turn]
        answers: list[Any] = await asyncio.gather(*first, *last)
        by_command = [answers[(index - turn) % len(commands)] for index in range(len(commands))]
        created = [by_command[0], by_command[2], by_command[4], await create()]
        await advance_gpu_reset(context, node, KEPT)
        return created.count(True) == 1, by_command[1].status == 200, by_command[3].status == 200

    created, returned, requested = run_with(database_url, way, pool_size=8)
    assert (created, returned) == (not requested, not requested)
    assert rows_of(database_url, CLAIMS_OF_TENANTS) == [(int(created),)]
    assert rows_of(database_url, TASKS) == [(int(requested),)]


def test_a_burn_in_and_a_reset_exclude_each_other(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        await take_out(context, node, 3, 4)
        await ask(context, node)
        assert refusal_of(await ask_for_burn_in(context, node, 4)) == (409, "invalid_state", "gpu_reset")
        await issue(context, node)
        await answer(context, database_url, node, results([3]))
        assert (await ask_for_burn_in(context, node, 4)).status == 200
        assert refusal_of(await ask(context, node)) == (409, "invalid_state", "burn_in")

    run_with(database_url, way)


def test_a_slot_in_maintenance_is_reset_and_its_window_does_not_end_meanwhile(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    first = window(database_url, node, [3])

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        assert (await ask(context, node)).status == 200
        await issue(context, node)
        refused = await end_maintenance(context, admin_operation(), ADMIN, first)
        assert refusal_of(refused) == (409, "invalid_state", "gpu_reset")
        assert await answer(context, database_url, node, results([3])) is Advanced.RESET
        assert (await end_maintenance(context, admin_operation(), ADMIN, first)).status == 200
        assert refusal_of(await ask(context, node))[:2] == (409, "gpus_in_service")

    run_with(database_url, way)
    assert free(database_url, node) == 8
    assert rows_of(database_url, "select count(*) from slot_quarantines") == [(0,)]


def test_a_window_that_ends_too_soon_does_not_serve(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    window(database_url, node, [3], 330.0)

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        refused = await ask(context, node)
        assert "slot 3: its maintenance window ends too soon" in body_of(refused)["detail"]
        await take_out(context, node, 3)
        assert (await ask(context, node)).status == 200, "the quarantine keeps it out"

    run_with(database_url, way)


def test_a_window_that_ended_before_the_task_was_issued_ends_the_request(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    first = window(database_url, node, [3])

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        assert (await ask(context, node)).status == 200
        end_now(database_url, first)
        assert await advance_window(context, first) is not None
        assert await advance_gpu_reset(context, node, KEPT) is Advanced.FAILED

    run_with(database_url, way)
    assert reset_row(database_url)["failure"] == "gpus_in_service: slot 3: is in service"
    assert rows_of(database_url, "select count(*) from slot_quarantines") == [(0,)]


@pytest.mark.parametrize(("found", "free_after"), [("reset", 8), ("gpu_reset_failed", 7)])
def test_a_window_that_ends_before_its_reset_is_judged_leaves_the_slot_in_quarantine(
    database_url: str, found: str, free_after: int
) -> None:
    node = seed(database_url).nodes[0].id
    first = window(database_url, node, [3, 4])

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        await ask(context, node)
        await issue(context, node)
        task = reset_task(database_url)
        end_now(database_url, first)
        assert await advance_window(context, first) is WindowState.ENDED
        assert free(database_url, node) == 7
        assert refusal_of(await bring_back(context, node, 3)) == (409, "invalid_state", "gpu_reset")
        report_of = results([3], outcome=found).model_dump(mode="json")
        assert (await report(context, task, completed(task, report_of))).applied
        assert await advance_gpu_reset(context, node, KEPT) is (Advanced.RESET if found == "reset" else Advanced.FAILED)
        assert free(database_url, node) == 7, "a reset ends no quarantine"
        returned = await bring_back(context, node, 3)
        assert returned.status == (200 if free_after == 8 else 409), returned.body

    run_with(database_url, way)
    assert free(database_url, node) == free_after
    assert rows_of(database_url, "select slot_index, quarantined_by, source, reason from slot_quarantines") == [
        (3, "worker:sweeper", "operator", "its maintenance window ended while the reset of its GPU was open")
    ]
    assert rows_of(database_url, "select count(*) from outbox where event_type = 'node.slot_quarantined'") == [(1,)]
    assert rows_of(database_url, "select count(*) from audit where action = 'node.slot_quarantine'") == [(1,)]


def test_a_reset_in_maintenance_that_is_not_proven_takes_the_slot_into_quarantine(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    first = window(database_url, node, [3, 4])

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        await ask(context, node)
        await issue(context, node)
        failed = results([3], outcome="gpu_reset_failed", evidence="e")
        assert await answer(context, database_url, node, failed) is Advanced.FAILED
        assert (await end_maintenance(context, admin_operation(), ADMIN, first)).status == 200
        assert refusal_of(await bring_back(context, node, 3))[:2] == (409, "burn_in_required")

    run_with(database_url, way)
    assert free(database_url, node) == 7
    assert rows_of(database_url, "select slot_index, quarantined_by, source, reason from slot_quarantines") == [
        (3, "worker:gpu_reset", "operator", "the reset of its GPU is not proven")
    ]
    assert rows_of(database_url, "select count(*) from outbox where event_type = 'node.slot_quarantined'") == [(1,)]


def test_a_failure_after_the_burn_in_that_passed_needs_another(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node, topology(gpus=[gpu(index, nvlinks=None) for index in range(8)]))
        await take_out(context, node, 3)
        with connect(database_url) as connection:
            connection.execute(
                "insert into node_burn_ins (node_id, slots, requested_by, task_id, issued_at, shared, ended_at, outcome, report)"
                " values (%s, '{3}', 'admin:a', uuidv7(), clock_timestamp(), false, clock_timestamp(), 'passed', '{}')",
                (node,),
            )
        await ask(context, node)
        await issue(context, node)
        await answer(context, database_url, node, results([3], outcome="gpu_reset_failed", evidence="e"))
        assert refusal_of(await bring_back(context, node, 3))[:2] == (409, "burn_in_required")

    run_with(database_url, way)
