"""The task of a window begins once its units are held, runs once on each node, and decides whether the units return."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node_agent.protocol import FailureCode
from node_agent.wire.burn_in import BurnInReport
from node_agent.wire.maintenance import MaintenancePluginReport
from orchestrator.maintenance.commands.advance import advance_window
from orchestrator.maintenance.queries import find_due_windows
from orchestrator.maintenance.states import TaskKind, WindowState, WindowTaskState
from orchestrator.maintenance.window_tasks import WantedTask
from orchestrator.nodes.maintenance_tasks.queries import find_open_tasks
from orchestrator.nodes.store import nodes
from orchestrator.operations.execution import Context
from tests.allocations.driving import clean_up, provision, release, row_of, rows_of, run_with
from tests.allocations.seeding import SLOTS, connect, create_allocation, seed, try_create
from tests.nodes.answers import body_of, refusal_of
from tests.nodes.burn_ins.running import ask as ask_for_burn_in
from tests.nodes.gpu_resets.running import ask as ask_for_reset
from tests.nodes.gpu_resets.running import ready, take_out
from tests.nodes.maintenance_tasks.running import (
    BROKEN,
    DONE,
    TASK,
    advance,
    answer,
    begin,
    begun_window,
    cancel,
    commit,
    end,
    ended_events,
    knows_tasks,
    occupied,
    parameters_of,
    quarantines,
    set_online,
    signed_task,
    sound,
    state_of,
    task_of,
    time_is_over,
)

ISSUED = "select count(*) from node_tasks where id in (select task_id from maintenance_tasks)"
FREE = "select bit_count(free_mask::bit(64)) as free from nodes where id = %s"


def test_a_task_runs_once_its_units_are_held_and_the_units_return_after_it(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    knows_tasks(database_url)

    async def way(context: Context) -> None:
        made = body_of(await commit(context, node))
        assert made["task"] == {"kind": "plugin", "plugin": "firmware", "timeout_seconds": 600, "firmware": None}
        ((one,), window_id) = made["tasks"], UUID(made["window_id"])
        assert (one["node_id"], one["state"], one["waits_for"]) == (str(node), "waiting", "units")
        assert await find_open_tasks(context, 10) == [], "the window has not started"
        assert await advance(context, window_id, node) is None
        assert await advance_window(context, window_id) is WindowState.ACTIVE
        await begin(context, window_id, node)
        assert occupied(database_url) == [True]
        assert parameters_of(signed_task(database_url)) == (
            "maintenance.plugin", {"plugin": "firmware", "slots": list(range(SLOTS))},
        )  # fmt: skip
        assert refusal_of(await end(context, window_id)) == (409, "invalid_state", "maintenance_task")
        sound(database_url)
        assert (await answer(context, database_url, DONE)).applied
        assert await find_open_tasks(context, 10) == [(window_id, node)]
        assert await advance(context, window_id, node) is WindowTaskState.COMPLETED
        assert await advance(context, window_id, node) is None, "it is concluded once"
        assert occupied(database_url) == [False]
        ended = body_of(await end(context, window_id))
        assert ended["tasks"][0]["evidence"] == "BIOS 1.2"

    run_with(database_url, way)
    assert ended_events(database_url) == [("completed", None)]
    assert row_of(database_url, FREE, node)["free"] == SLOTS
    assert quarantines(database_url) == []
    sound(database_url)


def test_units_of_an_allocation_delay_the_task_until_they_are_clean(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    mine = create_allocation(database_url, seeded, gpus=1)
    knows_tasks(database_url)

    async def way(context: Context) -> None:
        await provision(context, database_url, mine)
        window_id = await begun_window(context, node)
        assert await advance(context, window_id, node) is None
        await release(context, seeded, mine)
        assert row_of(database_url, "select planned from maintenance_units")["planned"] is not None
        assert await advance(context, window_id, node) is None, "its right has ended, and its guest may still run"
        assert await find_open_tasks(context, 10) == []
        await clean_up(context, database_url, mine)
        await begin(context, window_id, node)
        assert occupied(database_url) == [True, True], "two claims have the units now"
        sound(database_url)
        await answer(context, database_url, DONE)
        assert await advance(context, window_id, node) is WindowTaskState.COMPLETED

    run_with(database_url, way)
    assert occupied(database_url) == [False, False]
    sound(database_url)


def test_an_orphan_on_a_unit_delays_the_task(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    knows_tasks(database_url)

    async def way(context: Context) -> None:
        window_id = await begun_window(context, node)
        with connect(database_url) as connection:
            connection.execute(
                "insert into node_orphans (node_id, allocation_id, slots, state, waits_for, waits_since)"
                " values (%s, uuidv7(), '{3}', 'reported', 'operator', now())",
                (node,),
            )
        assert await advance(context, window_id, node) is None
        with connect(database_url) as connection:
            connection.execute("delete from node_orphans")
        assert await advance(context, window_id, node) is WindowTaskState.RUNNING

    run_with(database_url, way)


def test_units_that_never_become_free_leave_the_task_undone(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    create_allocation(database_url, seeded, gpus=1)
    knows_tasks(database_url)

    async def way(context: Context) -> None:
        window_id = await begun_window(context, node)
        time_is_over(database_url, window_id)
        assert await find_open_tasks(context, 10) == [(window_id, node)]
        assert await advance(context, window_id, node) is WindowTaskState.NOT_RUN
        assert await advance_window(context, window_id) is WindowState.ENDED
        assert state_of(database_url, window_id) == ("ended", "not_run", "units_not_held")

    run_with(database_url, way)
    assert quarantines(database_url) == []


def test_a_silent_node_gets_the_task_when_it_returns_or_not_at_all(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    knows_tasks(database_url)

    async def way(context: Context) -> None:
        set_online(database_url, online=False)
        first = await begun_window(context, node)
        assert await advance(context, first, node) is None
        set_online(database_url, online=True)
        await begin(context, first, node)
        await answer(context, database_url, DONE)
        assert await advance(context, first, node) is WindowTaskState.COMPLETED
        assert (await end(context, first)).status == 200
        set_online(database_url, online=False)
        second = await begun_window(context, node)
        time_is_over(database_url, second)
        assert await advance(context, second, node) is WindowTaskState.NOT_RUN
        assert state_of(database_url, second) == ("active", "not_run", "node_offline")

    run_with(database_url, way)


@pytest.mark.parametrize(
    ("found", "state", "code"),
    [
        (BROKEN, WindowTaskState.FAILED, "plugin_failed"),
        (FailureCode.DRIVER_ERROR, WindowTaskState.FAILED, "driver_error"),
        (FailureCode.INTERRUPTED, WindowTaskState.INTERRUPTED, "interrupted"),
        (FailureCode.TASK_REFUSED, WindowTaskState.NOT_RUN, "task_refused"),
        (
            MaintenancePluginReport(plugin="firmware", outcome="plugin_unknown", evidence="e"),
            WindowTaskState.NOT_RUN,
            "plugin_unknown",
        ),
        (BurnInReport(driver="d", shared=False, parts=[]), WindowTaskState.FAILED, "bad_report"),
    ],
    ids=["failed", "error", "interrupted", "refused", "unknown", "no_report"],
)
def test_what_began_and_did_not_complete_keeps_its_units_out(
    database_url: str, found: Any, state: WindowTaskState, code: str
) -> None:
    node = seed(database_url).nodes[0].id
    knows_tasks(database_url)

    async def way(context: Context) -> None:
        await take_out(context, node, 5)
        window_id = await begun_window(context, node)
        await begin(context, window_id, node)
        await answer(context, database_url, found)
        assert await advance(context, window_id, node) is state
        assert (await end(context, window_id)).status == 200
        assert state_of(database_url, window_id) == ("ended", state.value, code)

    run_with(database_url, way)
    out = quarantines(database_url)
    is_out = state is not WindowTaskState.NOT_RUN
    assert [slot for slot, *_ in out] == (list(range(SLOTS)) if is_out else [5])
    if is_out:
        said = "was interrupted" if state is WindowTaskState.INTERRUPTED else "failed"
        assert out[0][1] == f"the task of its maintenance window (plugin firmware) {said}"
        assert out[0][2].startswith(f"{code}: ")
        assert out[5][1] == "noise"
    assert row_of(database_url, FREE, node)["free"] == (0 if is_out else SLOTS - 1)
    sound(database_url)


def test_a_task_that_the_node_never_read_has_not_run_and_one_that_it_read_has_failed(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    knows_tasks(database_url)

    async def way(context: Context) -> None:
        for dispatched, state in ((False, WindowTaskState.NOT_RUN), (True, WindowTaskState.FAILED)):
            window_id = await begun_window(context, node)
            await begin(context, window_id, node)
            with connect(database_url) as connection:
                connection.execute(
                    "update node_tasks set dispatched_at = case when %s then clock_timestamp() end, state = 'expired',"
                    " finished_at = clock_timestamp() where state = 'queued'",
                    (dispatched,),
                )
            assert await advance(context, window_id, node) is state
            assert (await end(context, window_id)).status == 200
            assert state_of(database_url, window_id) == ("ended", state.value, "task_expired")

    run_with(database_url, way)
    assert len(quarantines(database_url)) == SLOTS


def test_a_window_does_not_end_before_its_task_and_no_other_gets_the_units(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    knows_tasks(database_url)

    async def way(context: Context) -> None:
        window_id = await begun_window(context, node)
        await begin(context, window_id, node)
        time_is_over(database_url, window_id)
        with connect(database_url) as connection:
            connection.execute(
                "update claims set during = tstzrange(lower(during), clock_timestamp()) where owner_id = %s",
                (window_id,),
            )
            assert try_create(connection, seeded) is None
        assert await find_due_windows(context.database, 10) == []
        assert await advance_window(context, window_id) is None
        assert state_of(database_url, window_id) == ("active", "running", None)
        await answer(context, database_url, DONE)
        assert await advance(context, window_id, node) is WindowTaskState.COMPLETED
        assert await find_due_windows(context.database, 10) == [window_id]
        assert await advance_window(context, window_id) is WindowState.ENDED
        with connect(database_url) as connection:
            assert try_create(connection, seeded) is not None

    run_with(database_url, way)


def test_a_cancelled_window_and_one_that_ends_early_run_nothing(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    knows_tasks(database_url)

    async def way(context: Context) -> None:
        later = UUID(body_of(await commit(context, node, starts=1))["window_id"])
        assert (await cancel(context, later)).status == 200
        assert state_of(database_url, later) == ("cancelled", "not_run", "window_cancelled")
        set_online(database_url, online=False)
        window_id = await begun_window(context, node)
        assert (await end(context, window_id)).status == 200
        assert state_of(database_url, window_id) == ("ended", "not_run", "window_ended")
        assert await advance(context, window_id, node) is None

    run_with(database_url, way)
    assert [state for state, _ in ended_events(database_url)] == ["not_run", "not_run"]
    assert row_of(database_url, ISSUED)["count"] == 0


def test_a_window_that_an_earlier_version_closed_runs_nothing(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    knows_tasks(database_url)

    async def way(context: Context) -> None:
        window_id = await begun_window(context, node)
        with connect(database_url) as connection:
            connection.execute(
                "update maintenance_windows set state = 'ended', ended_at = clock_timestamp(), waits_for = null,"
                " waits_since = null, waits_until = null where id = %s",
                (window_id,),
            )
            connection.execute("select close_maintenance_claims(%s)", (window_id,))
        assert await find_open_tasks(context, 10) == [(window_id, node)]
        assert await advance(context, window_id, node) is WindowTaskState.NOT_RUN
        assert state_of(database_url, window_id) == ("ended", "not_run", "window_ended")

    run_with(database_url, way)


def test_refusals_change_nothing(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        for kind in (TaskKind.BURN_IN, TaskKind.GPU_RESET, TaskKind.PLUGIN):
            refused = await commit(context, node, task_of(kind))
            assert refusal_of(refused)[:2] == (409, "maintenance_task_unsupported")
            assert body_of(refused)["nodes"][0]["node_id"] == str(node)
        knows_tasks(database_url)
        refused = await commit(context, node, task_of(TaskKind.GPU_RESET))
        assert "does not name a GPU for each slot" in body_of(refused)["detail"]
        assert refusal_of(await commit(context, node, slots=(0, 1)))[:2] == (422, "maintenance_task_invalid")
        for seconds in (1, 29):
            hasty = WantedTask(TaskKind.PLUGIN, "firmware", seconds)
            assert refusal_of(await commit(context, node, hasty))[:2] == (422, "maintenance_task_invalid")
        assert refusal_of(await commit(context, node, task_of(TaskKind.BURN_IN), hours=1.0))[:2] == (
            422, "maintenance_task_invalid",
        )  # fmt: skip
        assert rows_of(database_url, "select count(*) from maintenance_windows") == [(0,)]
        assert (await commit(context, node, task_of(TaskKind.HEALTH_PROBE), slots=(0, 1))).status == 201

    run_with(database_url, way)


def test_an_agent_of_the_version_before_at_the_start_gets_nothing(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    knows_tasks(database_url)

    async def way(context: Context) -> None:
        window_id = await begun_window(context, node)
        knows_tasks(database_url, "{burn_in}")
        assert await advance(context, window_id, node) is WindowTaskState.NOT_RUN
        assert state_of(database_url, window_id) == ("active", "not_run", "task_unsupported")

    run_with(database_url, way)
    assert row_of(database_url, ISSUED)["count"] == 0


def test_a_running_task_a_burn_in_and_a_reset_exclude_each_other(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        knows_tasks(database_url)
        await take_out(context, node, 3)
        assert (await ask_for_reset(context, node)).status == 200
        window_id = await begun_window(context, node)
        assert await advance(context, window_id, node) is None, "a reset is open"
        with connect(database_url) as connection:
            connection.execute("delete from node_gpu_resets")
        await begin(context, window_id, node)
        assert refusal_of(await ask_for_reset(context, node)) == (409, "invalid_state", "maintenance_task")
        assert refusal_of(await ask_for_burn_in(context, node, 3)) == (409, "invalid_state", "maintenance_task")

    run_with(database_url, way)


def test_the_units_of_a_running_task_are_shown_as_in_maintenance(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    knows_tasks(database_url)

    async def way(context: Context) -> list[str]:
        window_id = await begun_window(context, node)
        await begin(context, window_id, node)
        async with context.database.reading() as reading:
            return [slot.state for slot in await nodes.read_slots(reading, node)]

    assert set(run_with(database_url, way)) == {"held"}
    assert row_of(database_url, TASK.removesuffix(" where window_id = %s"))["state"] == "running"
