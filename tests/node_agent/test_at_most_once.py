"""At a running agent: a task has one effect, however often it arrives, and none once it has expired."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest

from node_agent.drivers.sandbox.records import AllocationDirectory
from node_agent.journal_state import REPORTED_MIN
from node_agent.protocol import FailureCode, TaskType
from tests.node_agent.agents import AgentProcess, Tenant, release
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane


def test_a_task_handed_out_again_while_it_runs_has_one_effect(play: Play) -> None:
    """The server hands it out on every poll, although the agent names it as known."""

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()
        slow = {"slow_phase_seconds": "1.5", "slow_phase": "guest_marker"}
        body = plane.body(TaskType.VM_PROVISION, tenant.provision([1], faults=slow), allocation)
        task = await plane.hand_out(body)
        await plane.until(lambda: "ssh_ready" in plane.progress[task])
        plane.insist.add(task)
        await plane.until(lambda: plane.repeated >= 3)
        assert not plane.results[task], "it still runs"
        plane.insist.clear()
        assert (await plane.result_of(task)).outcome == "completed"
        guest = AllocationDirectory(agent.guest_directory(allocation)).guest_state()
        # A second effect would run after the first and before the release, which follows it in the allocation's order.
        removal = await plane.hand_out(plane.body(TaskType.VM_RELEASE, release([1]), allocation))
        assert (await plane.result_of(removal)).outcome == "completed"
        assert guest is not None
        assert len(plane.progress[task]) == len(set(plane.progress[task])), "no phase ran twice"
        assert agent.log.count("task_ended") == 2, "the provision and the release"
        assert [report.outcome for report in plane.results[task]] == ["completed"]

    play(scenario, BERTH_AGENT_WAIT_SECONDS="0.05")


@pytest.mark.full
def test_a_task_that_expires_in_the_queue_has_no_effect(play: Play) -> None:
    """It was valid when it was accepted; its turn comes after its deadline."""

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        first, second = uuid.uuid4(), uuid.uuid4()
        slow = {"slow_phase_seconds": "4", "slow_phase": "ssh_ready"}
        ahead = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([0], faults=slow), first))
        await plane.until(lambda: bool(plane.progress[ahead]))
        expires_at = plane.now() + dt.timedelta(seconds=2.5)
        body = plane.body(TaskType.VM_PROVISION, tenant.provision([1]), second, expires_at=expires_at)
        queued = await plane.hand_out(body)
        await plane.until(lambda: queued in plane.known)
        assert plane.now() < expires_at, "it was accepted in time"
        report = await plane.result_of(queued)
        assert (await plane.result_of(ahead)).outcome == "completed"
        assert report.failure is not None
        assert report.failure.code is FailureCode.TASK_REFUSED
        assert "expired" in report.failure.detail
        assert plane.progress[queued] == []
        assert not agent.guest_directory(second).exists()
        assert agent.leased_slots() == {"slot-0.json"}

    play(scenario, BERTH_AGENT_TASKS_MAX="1", BERTH_AGENT_WAIT_SECONDS="0.3")


@pytest.mark.full
def test_a_completed_task_that_was_forgotten_has_no_second_effect(play: Play) -> None:
    """The agent keeps so many reports of tasks whose ids have no time; a restored server hands out a task older than those."""

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()
        task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([2]), allocation))
        assert (await plane.result_of(task)).outcome == "completed"
        guest = AllocationDirectory(agent.guest_directory(allocation)).guest_state()
        phases = list(plane.progress[task])
        later = [
            await plane.hand_out(plane.body(TaskType.VM_RELEASE, release([3]), uuid.uuid4()))
            for _ in range(REPORTED_MIN + 6)
        ]
        await plane.until(lambda: all(plane.results[one] for one in later))
        await plane.until(lambda: plane.known == [])
        plane.results[task].clear()
        async with plane.changed:
            plane.changed.notify_all()
        failure = (await plane.result_of(task)).failure
        assert failure is not None
        assert failure.code is FailureCode.TASK_REFUSED
        assert "already used" in failure.detail
        assert plane.progress[task] == phases
        assert AllocationDirectory(agent.guest_directory(allocation)).guest_state() == guest
        assert agent.leased_slots() == {"slot-2.json"}

    play(scenario, BERTH_AGENT_WAIT_SECONDS="0.5")


@pytest.mark.full
def test_a_release_ordered_again_proves_what_an_earlier_one_wiped(play: Play) -> None:
    """The report of the first one came too late; between both the agent is killed. A new provision needs a new proof."""

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()

        async def devices(kind: TaskType, parameters: dict[str, Any]) -> list[Any]:
            report = await plane.result_of(await plane.hand_out(plane.body(kind, parameters, allocation)))
            assert report.result is not None
            found: list[Any] = report.result["evidence"]["devices"]
            return found

        given = await devices(TaskType.VM_PROVISION, tenant.provision([1]))
        first = await devices(TaskType.VM_RELEASE, release([1]))
        assert [proof["device"] for proof in first] == given
        agent.kill()
        agent.start()
        assert await devices(TaskType.VM_RELEASE, release([1])) == first
        again = await devices(TaskType.VM_PROVISION, tenant.provision([1]))
        agent.guest_directory(allocation).rename(agent.state_dir / "elsewhere")
        assert again == given
        assert await devices(TaskType.VM_RELEASE, release([1])) == [], "no earlier proof is about the new disk"

    play(scenario)
