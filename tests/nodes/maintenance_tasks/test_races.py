"""Workers that sweep at once, and ends of windows and tasks that race: one task is signed, and each end happens once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from node_agent.protocol import FailureCode
from orchestrator.maintenance.commands.advance import advance_window
from orchestrator.operations.execution import Context
from tests.allocations.driving import rows_of, run_with
from tests.allocations.seeding import connect, seed, try_create
from tests.at_length import at_length
from tests.nodes.maintenance_tasks.running import (
    DONE,
    advance,
    answer,
    begin,
    begun_window,
    end,
    ended_events,
    knows_tasks,
    quarantines,
    sound,
    state_of,
    time_is_over,
)
from worker.sweepers.maintenance import sweep_maintenance, sweep_maintenance_tasks

SIGNED = "select count(*) from node_tasks where type = 'maintenance.plugin'"


def test_workers_that_sweep_at_once_sign_one_task(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    knows_tasks(database_url)

    async def way(context: Context) -> None:
        window_id = await begun_window(context, node)
        await asyncio.gather(*(sweep_maintenance_tasks(context, {}, 10) for _ in range(6)))
        assert rows_of(database_url, SIGNED) == [(1,)]
        await answer(context, database_url, DONE)
        await asyncio.gather(*(sweep_maintenance_tasks(context, {}, 10) for _ in range(6)))
        assert state_of(database_url, window_id) == ("active", "completed", None)

    run_with(database_url, way, pool_size=8)
    assert ended_events(database_url) == [("completed", None)]
    assert rows_of(database_url, SIGNED) == [(1,)]


@pytest.mark.parametrize("turn", at_length(range(5), [0, 1]))
def test_the_end_of_the_window_and_that_of_the_task_race(database_url: str, turn: int) -> None:
    """Whatever comes first, the units of a failed task do not return, and both end once."""
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    knows_tasks(database_url)

    async def create() -> None:
        def tried() -> None:
            with connect(database_url) as connection:
                assert try_create(connection, seeded) is None

        await asyncio.to_thread(tried)

    async def way(context: Context) -> None:
        window_id = await begun_window(context, node)
        await begin(context, window_id, node)
        time_is_over(database_url, window_id)
        commands: list[Coroutine[Any, Any, Any]] = [
            sweep_maintenance(context, 86_400.0, 10), answer(context, database_url, FailureCode.DRIVER_ERROR),
            sweep_maintenance_tasks(context, {}, 10), create(), end(context, window_id),
        ]  # fmt: skip
        await asyncio.gather(*commands[turn:], *commands[:turn])
        await advance(context, window_id, node)
        await advance_window(context, window_id)
        assert state_of(database_url, window_id) == ("ended", "failed", "driver_error")
        await create()

    run_with(database_url, way, pool_size=10)
    assert len(quarantines(database_url)) == 8
    assert [state for state, _ in ended_events(database_url)] == ["failed"]
    sound(database_url)


@pytest.mark.parametrize("turn", at_length(range(4), [0, 1]))
def test_the_start_of_a_task_and_the_end_of_its_window_race(database_url: str, turn: int) -> None:
    """Either the task has begun and the window waits for it, or the window is over and nothing was signed."""
    node = seed(database_url).nodes[0].id
    knows_tasks(database_url)

    async def way(context: Context) -> tuple[str, str, str | None]:
        window_id = await begun_window(context, node)
        commands: list[Coroutine[Any, Any, Any]] = [
            end(context, window_id), sweep_maintenance_tasks(context, {}, 10), end(context, window_id),
            sweep_maintenance_tasks(context, {}, 10),
        ]  # fmt: skip
        await asyncio.gather(*commands[turn:], *commands[:turn])
        return state_of(database_url, window_id)

    found = run_with(database_url, way, pool_size=8)
    ((signed,),) = rows_of(database_url, SIGNED)
    assert (found, signed) in ((("active", "running", None), 1), (("ended", "not_run", "window_ended"), 0))
    sound(database_url)
