"""The real agent process answers orders to reset GPUs."""

from __future__ import annotations

import uuid
from typing import Any

from node_agent.protocol import FailureCode, ResultReport, TaskType
from node_agent.wire.gpu_reset import GpuResetReport
from tests.node_agent.agents import AgentProcess, Tenant, release
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane

NOWHERE = "0000:fe:1f.7"
ORDER = {"slots": [2], "gpus": [NOWHERE]}


def outcome_of(result: ResultReport) -> tuple[str, str]:
    assert result.outcome == "completed", result
    (one,) = GpuResetReport.model_validate(result.result).gpus
    return one.outcome, one.evidence


def test_an_order_is_answered_and_an_allocation_protects_its_gpu(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        async def order() -> tuple[str, str]:
            return outcome_of(await plane.result_of(await plane.hand_out(plane.body(TaskType.GPU_RESET, ORDER))))

        assert await order() == ("gpu_missing", "no device is at this address")
        assert "gpu_reset" in plane.heartbeats[-1].features
        assert "gpu_reset_ended" in agent.log
        allocation = uuid.uuid4()
        task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([2]), allocation))
        assert (await plane.result_of(task)).outcome == "completed"
        assert await order() == ("gpu_in_use", "an allocation is on a slot of the order")
        task = await plane.hand_out(plane.body(TaskType.VM_RELEASE, release([2]), allocation))
        assert (await plane.result_of(task)).outcome == "completed"
        assert (await order())[0] == "gpu_missing"

    play(scenario)


def test_orders_that_are_wrong_are_refused(play: Play) -> None:
    wrong: list[dict[str, Any]] = [
        {}, {**ORDER, "slots": []}, {**ORDER, "slots": [64]}, {**ORDER, "gpus": []}, {**ORDER, "gpus": ["x"]},
    ]  # fmt: skip

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        for order in wrong:
            report = await plane.result_of(await plane.hand_out(plane.body(TaskType.GPU_RESET, order)))
            assert report.failure is not None, order
            assert report.failure.code is FailureCode.TASK_REFUSED

    play(scenario)
