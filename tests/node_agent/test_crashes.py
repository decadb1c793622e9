"""The real agent process is killed or stopped, and another takes over: nothing is lost, nothing is done twice."""

from __future__ import annotations

import uuid

import pytest

from node_agent.drivers.sandbox.processes import alive
from node_agent.drivers.sandbox.records import AllocationDirectory
from node_agent.protocol import FailureCode, ReleaseResult, TaskType
from tests.node_agent.agents import AgentProcess, Tenant, connection_of, release
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane


@pytest.mark.quick("True")
@pytest.mark.parametrize("crash", [True, False])
def test_an_interrupted_provision_is_undone_and_reported(play: Play, crash: bool) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()
        slow = {"slow_phase_seconds": "60", "slow_phase": "ssh_ready"}
        body = plane.body(TaskType.VM_PROVISION, tenant.provision([2], faults=slow), allocation)
        task = await plane.hand_out(body)
        await plane.until(lambda: "boot" in plane.progress[task])
        directory = AllocationDirectory(agent.guest_directory(allocation))
        assert alive(directory)
        if crash:
            agent.kill()
            assert alive(directory), "a crash of the agent ends no guest"
        else:
            assert await agent.stop() == 0
            assert not plane.results[task]

        agent.start()
        report = await plane.result_of(task)
        assert report.outcome == "failed"
        assert report.failure is not None
        assert report.failure.code is FailureCode.INTERRUPTED
        assert not directory.exists()
        assert not alive(directory)
        assert agent.leased_slots() == set()
        assert len(plane.enrolments) == 1, "a restart does not enrol again"

    play(scenario)


@pytest.mark.full
def test_an_interrupted_release_runs_again_from_its_start(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()
        task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([2]), allocation))
        assert (await plane.result_of(task)).outcome == "completed"
        slow = release([2], slow_phase_seconds="1", slow_phase="wiped")
        task = await plane.hand_out(plane.body(TaskType.VM_RELEASE, slow, allocation))
        await plane.until(lambda: plane.progress[task] == ["guest_stopped"])
        agent.kill()
        assert agent.leased_slots() == {"slot-2.json"}, "leases go last"
        agent.start()
        report = await plane.result_of(task)
        assert report.outcome == "completed"
        assert ReleaseResult.model_validate(report.result).released
        assert not agent.guest_directory(allocation).exists()
        assert agent.leased_slots() == set()
        assert plane.progress[task] == ["guest_stopped", "guest_stopped", "wiped", "leases_released"]

    play(scenario)


def test_what_is_finished_and_unreported_is_reported_again_and_not_run_again(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()
        plane.break_results = 10_000
        task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([2]), allocation))
        await plane.until(lambda: plane.break_results < 10_000)
        guest = AllocationDirectory(agent.guest_directory(allocation)).guest_state()
        assert guest is not None
        await plane.until(lambda: plane.known == [task])
        phases = list(plane.progress[task])
        agent.kill()
        plane.break_results = 0
        plane.silent_results = 1

        agent.start()
        report = await plane.result_of(task)
        assert report.outcome == "completed"
        assert await tenant.run(connection_of(report.result), "echo here") == "here\n"
        await plane.until(lambda: len(plane.results[task]) == 2)
        assert plane.results[task][1] == report, "an answer that was lost is asked for again, with the same report"
        await plane.until(lambda: plane.waits > 0 and plane.known == [])
        assert AllocationDirectory(agent.guest_directory(allocation)).guest_state() == guest
        assert plane.progress[task] == phases
        assert await agent.stop() == 0
        assert "task_found_unfinished" not in agent.log

    play(scenario, BERTH_AGENT_WAIT_SECONDS="0.5")


@pytest.mark.full
def test_guests_outlive_a_crash_and_a_stop_and_end_with_an_agent_that_ends_guests(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()
        task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([2]), allocation))
        connection = connection_of((await plane.result_of(task)).result)
        await tenant.run(connection, "echo precious > data")
        directory = AllocationDirectory(agent.guest_directory(allocation))
        first = directory.guest_state()

        agent.kill()
        assert await tenant.run(connection, "cat data") == "precious\n"
        plane.heartbeats.clear()
        agent.start()
        await plane.until(lambda: bool(plane.heartbeats))
        assert plane.heartbeats[0].allocations == [allocation]
        assert directory.guest_state() == first, "adopted, not started anew"

        assert await agent.stop() == 0
        assert await tenant.run(connection, "cat data") == "precious\n", "an orderly stop ends no guest"
        plane.heartbeats.clear()
        agent.start(BERTH_AGENT_ENDS_GUESTS="true")
        await plane.until(lambda: bool(plane.heartbeats))
        assert directory.guest_state() == first

        assert await agent.stop() == 0
        assert not alive(directory), "as in a local stack"
        plane.heartbeats.clear()
        agent.start()
        await plane.until(lambda: bool(plane.heartbeats))
        assert directory.guest_state() != first
        assert await tenant.run(connection, "cat data") == "precious\n", "same port, same host key, same files"

        task = await plane.hand_out(plane.body(TaskType.VM_RELEASE, release([2]), allocation))
        assert (await plane.result_of(task)).outcome == "completed"
        assert not directory.exists()

    play(scenario)


def test_a_task_is_taken_once_however_often_it_is_handed_out(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()
        body = plane.body(TaskType.VM_PROVISION, tenant.provision([2]), allocation)
        task = await plane.hand_out(body)
        report = await plane.result_of(task)
        guest = AllocationDirectory(agent.guest_directory(allocation)).guest_state()
        # The server has forgotten the report, as one restored from a backup would.
        plane.results[task].clear()
        async with plane.changed:
            plane.changed.notify_all()
        assert await plane.result_of(task) == report
        assert AllocationDirectory(agent.guest_directory(allocation)).guest_state() == guest

    play(scenario, BERTH_AGENT_WAIT_SECONDS="0.5")
