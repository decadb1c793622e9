"""What a window runs: health probes and burn-ins are judged as ever, and GPUs are reset together or not at all."""

from __future__ import annotations

from node_agent.wire.gpu_reset import GpuResetReport
from node_agent.wire.health import HealthReport, PluginResult
from orchestrator.maintenance.states import TaskKind, WindowTaskState
from orchestrator.operations.execution import Context
from tests.allocations.driving import run_with
from tests.allocations.seeding import seed
from tests.discovery.trees import GPU_ADDRESSES
from tests.nodes.burn_ins.running import FAULTY, burned_in
from tests.nodes.gpu_resets.running import passed_through, ready, results
from tests.nodes.maintenance_tasks.running import (
    advance,
    answer,
    begin,
    begun_window,
    end,
    knows_tasks,
    parameters_of,
    quarantines,
    signed_task,
    state_of,
    task_of,
)


def test_a_burn_in_and_a_health_probe_are_judged(database_url: str) -> None:
    node = seed(database_url).nodes[0].id
    knows_tasks(database_url)
    plugin = PluginResult(name="fans", verdict="fault", evidence="fan 3 stopped")

    async def way(context: Context) -> None:
        for kind, found, state, code in (
            (TaskKind.BURN_IN, burned_in(), WindowTaskState.COMPLETED, None),
            (TaskKind.HEALTH_PROBE, HealthReport(driver="libvirt"), WindowTaskState.COMPLETED, None),
            (
                TaskKind.HEALTH_PROBE,
                HealthReport(driver="libvirt", plugins=[plugin]),
                WindowTaskState.FAILED,
                "fault_found",
            ),
            (TaskKind.BURN_IN, FAULTY, WindowTaskState.FAILED, "burn_in_faulty"),
        ):
            window_id = await begun_window(context, node, task_of(kind), slots=(2, 3))
            await begin(context, window_id, node)
            await answer(context, database_url, found)
            assert await advance(context, window_id, node) is state, kind
            assert (await end(context, window_id)).status == 200
            assert state_of(database_url, window_id) == ("ended", state.value, code)

    run_with(database_url, way)
    assert [slot for slot, *_ in quarantines(database_url)] == [2, 3]


def test_gpus_are_reset_together_or_not_at_all(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        window_id = await begun_window(context, node, task_of(TaskKind.GPU_RESET), slots=(3, 6))
        await begin(context, window_id, node)
        kind, order = parameters_of(signed_task(database_url))
        assert (kind, order["gpus"]) == ("diag.gpu_reset", [GPU_ADDRESSES[3], GPU_ADDRESSES[6]])
        await answer(context, database_url, results([3, 6]))
        assert await advance(context, window_id, node) is WindowTaskState.COMPLETED
        assert (await end(context, window_id)).status == 200
        window_id = await begun_window(context, node, task_of(TaskKind.GPU_RESET), slots=(3, 6))
        await begin(context, window_id, node)
        await answer(context, database_url, results([3, 6], outcome="gpu_reset_failed"))
        assert await advance(context, window_id, node) is WindowTaskState.FAILED

    run_with(database_url, way)
    assert [slot for slot, *_ in quarantines(database_url)] == [3, 6]


def test_a_reset_that_touched_nothing_lets_the_units_return(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node)
        window_id = await begun_window(context, node, task_of(TaskKind.GPU_RESET), slots=(3,))
        await begin(context, window_id, node)
        untouched = GpuResetReport.model_validate(
            {"driver": "libvirt", "gpus": [{"address": GPU_ADDRESSES[3], "outcome": "gpu_in_use"}]}
        )
        await answer(context, database_url, untouched)
        assert await advance(context, window_id, node) is WindowTaskState.NOT_RUN

    run_with(database_url, way)
    assert quarantines(database_url) == []


def test_gpus_that_the_window_does_not_have_keep_theirs_from_being_reset(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> None:
        await ready(context, database_url, node, passed_through(1, 3, 6))
        window_id = await begun_window(context, node, task_of(TaskKind.GPU_RESET), slots=(3, 6))
        assert await advance(context, window_id, node) is WindowTaskState.NOT_RUN
        assert state_of(database_url, window_id) == ("active", "not_run", "gpus_in_service")

    run_with(database_url, way)
