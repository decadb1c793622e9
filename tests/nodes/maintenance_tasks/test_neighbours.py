"""What one task may not do to others: windows of the same node, and items of the same sweep."""

from __future__ import annotations

from uuid import UUID

from prometheus_client import REGISTRY

from node_agent.wire.health import EVIDENCE_MAX
from node_agent.wire.maintenance import MaintenancePluginReport
from orchestrator.maintenance.states import TaskKind, WindowTaskState
from orchestrator.operations.execution import Context
from tests.allocations.driving import row_of, run_with
from tests.allocations.seeding import connect, seed
from tests.nodes.maintenance_tasks.running import (
    TASK,
    advance,
    answer,
    begin,
    begun_window,
    ended_events,
    knows_tasks,
    sound,
    state_of,
    task_of,
    time_is_over,
)
from worker.sweepers.maintenance import sweep_maintenance_tasks

PROBE = task_of(TaskKind.HEALTH_PROBE)


def failures() -> float:
    return REGISTRY.get_sample_value("berth_worker_sweep_failures_total", {"sweeper": "maintenance_tasks"}) or 0.0


def states(url: str, *windows: UUID) -> list[str]:
    return [row_of(url, TASK, one)["state"] for one in windows]


def test_a_second_window_of_a_node_waits_for_the_task_of_the_first(database_url: str) -> None:
    first_node, other_node = (one.id for one in seed(database_url, slice_nodes=2).nodes)
    knows_tasks(database_url)

    async def way(context: Context) -> None:
        first = await begun_window(context, first_node, PROBE, slots=(0,))
        second = await begun_window(context, first_node, PROBE, slots=(1,))
        other = await begun_window(context, other_node, PROBE)
        await sweep_maintenance_tasks(context, {}, 10)
        assert states(database_url, first, second, other) == ["running", "waiting", "running"]
        assert await advance(context, second, first_node) is None
        await sweep_maintenance_tasks(context, {}, 10)
        sound(database_url)
        time_is_over(database_url, second)
        assert await advance(context, second, first_node) is WindowTaskState.NOT_RUN
        assert state_of(database_url, second) == ("active", "not_run", "node_busy")

    run_with(database_url, way)


def test_a_report_as_long_as_it_may_be_ends_the_task(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    knows_tasks(database_url)
    longest = MaintenancePluginReport(plugin="firmware", outcome="failed", rebooted=True, evidence="e" * EVIDENCE_MAX)

    async def way(context: Context) -> None:
        window_id = await begun_window(context, node)
        await begin(context, window_id, node)
        await answer(context, database_url, longest)
        assert await advance(context, window_id, node) is WindowTaskState.FAILED
        task = row_of(database_url, TASK, window_id)
        assert (len(task["failure"]), len(task["evidence"])) == (500, 1000)
        assert ended_events(database_url) == [("failed", task["failure"])]

    run_with(database_url, way)
    sound(database_url)


def test_an_item_that_cannot_be_read_stops_no_other(database_url: str) -> None:
    bad, good = (one.id for one in seed(database_url, slice_nodes=2).nodes)
    knows_tasks(database_url)

    async def way(context: Context) -> None:
        broken = await begun_window(context, bad, PROBE)
        with connect(database_url) as connection:
            # A topology that this version cannot read.
            connection.execute(
                "insert into node_topologies (node_id, task_id, epoch, next_at, found, found_digest, found_at)"
                " values (%s, uuidv7(), 1, now(), '{}', '', now())",
                (bad,),
            )
        whole = await begun_window(context, good, PROBE)
        await sweep_maintenance_tasks(context, {}, 10)
        before = failures()
        with connect(database_url) as connection:
            connection.execute(
                "update node_tasks set state = 'failed', failure_code = 'driver_error', finished_at = now()"
            )
        await sweep_maintenance_tasks(context, {}, 10)
        assert states(database_url, broken, whole) == ["running", "failed"]
        assert failures() == before + 1

    run_with(database_url, way)
