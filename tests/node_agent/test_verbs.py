"""Verbs of a running allocation, performed by the real agent process: kept claim, fences, interruption, SIGKILL."""

from __future__ import annotations

import uuid
from typing import Any
from uuid import UUID

import asyncssh
import pytest

from node_agent.protocol import Connection, FailureCode, ReleaseResult, ResultReport, TaskType, VerbResult
from tests.node_agent.agents import AgentProcess, Tenant, connection_of, release
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane

SLOTS = [1]


class Guest:
    """One allocation that is up."""

    def __init__(self, plane: ControlPlane, tenant: Tenant) -> None:
        self.plane = plane
        self.tenant = tenant
        self.allocation = uuid.uuid4()
        self.connection: Connection

    async def provision(self) -> None:
        body = self.plane.body(TaskType.VM_PROVISION, self.tenant.provision(SLOTS), self.allocation)
        self.connection = connection_of((await self.plane.result_of(await self.plane.hand_out(body))).result)

    async def order(self, verb: TaskType, graceful_seconds: float = 5.0, **faults: str) -> UUID:
        parameters: dict[str, Any] = {"slots": SLOTS, "graceful_seconds": graceful_seconds, "faults": faults}
        if verb is TaskType.REBUILD:
            parameters = self.tenant.provision(**parameters)
        return await self.plane.hand_out(self.plane.body(verb, parameters, self.allocation))

    async def perform(self, verb: TaskType) -> VerbResult:
        report = await self.plane.result_of(await self.order(verb))
        assert report.outcome == "completed", report
        return VerbResult.model_validate(report.result)

    async def run(self, command: str, connection: Connection | None = None) -> str:
        return await self.tenant.run(connection or self.connection, command)


def _refused(report: ResultReport, code: FailureCode) -> str:
    assert report.outcome == "failed", report
    assert report.failure is not None
    assert report.failure.code is code
    return report.failure.detail


def test_a_guest_is_stopped_started_rebooted_and_rebuilt_on_its_slots(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        guest = Guest(plane, tenant)
        await guest.provision()
        await guest.run("echo kept > file")

        assert (await guest.perform(TaskType.STOP)).connection is None
        with pytest.raises(ConnectionRefusedError):
            await guest.run("true")
        assert agent.leased_slots() == {"slot-1.json"}, "what is stopped keeps its slots"
        plane.heartbeats.clear()
        await plane.until(lambda: bool(plane.heartbeats))
        assert plane.heartbeats[-1].allocations == [guest.allocation]

        assert (await guest.perform(TaskType.START)).connection == guest.connection
        assert await guest.run("cat file") == "kept\n"
        assert (await guest.perform(TaskType.REBOOT)).connection == guest.connection
        assert await guest.run("cat file") == "kept\n"

        rebuilt = (await guest.perform(TaskType.REBUILD)).connection
        assert rebuilt is not None
        assert rebuilt.host_key != guest.connection.host_key, "a fresh disk has a fresh host key"
        with pytest.raises(asyncssh.ProcessError):
            await guest.run("cat file", rebuilt)
        assert agent.leased_slots() == {"slot-1.json"}

        removal = await plane.hand_out(plane.body(TaskType.VM_RELEASE, release(SLOTS), guest.allocation))
        assert ReleaseResult.model_validate((await plane.result_of(removal)).result).released

    play(scenario)


def test_a_release_interrupts_a_verb_and_removes_the_guest(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        guest = Guest(plane, tenant)
        await guest.provision()
        verb = await guest.order(TaskType.REBOOT, slow_phase_seconds="60", slow_phase="boot")
        await plane.until(lambda: plane.progress[verb] == ["guest_stopped"])
        removal = await plane.hand_out(plane.body(TaskType.VM_RELEASE, release(SLOTS), guest.allocation))
        assert ReleaseResult.model_validate((await plane.result_of(removal)).result).released
        assert "newer fence" in _refused(await plane.result_of(verb), FailureCode.INTERRUPTED)
        assert not agent.guest_directory(guest.allocation).exists()
        assert agent.leased_slots() == set()

    play(scenario)


@pytest.mark.full
@pytest.mark.quick("rebuild")
@pytest.mark.parametrize(
    ("verb", "phase", "before"),
    [
        (TaskType.REBOOT, "boot", ["guest_stopped"]),
        (TaskType.REBUILD, "image", ["guest_stopped", "wiped", "lease"]),
    ],
    ids=["reboot", "rebuild"],
)
def test_a_verb_interrupted_by_sigkill_runs_again_from_its_start(
    play: Play, verb: TaskType, phase: str, before: list[str]
) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        guest = Guest(plane, tenant)
        await guest.provision()
        task = await guest.order(verb, slow_phase_seconds="1.5", slow_phase=phase)
        await plane.until(lambda: plane.progress[task] == before)
        agent.kill()
        agent.start()
        report = await plane.result_of(task)
        assert report.outcome == "completed", report
        assert plane.progress[task][: 2 * len(before)] == before * 2
        assert await guest.run("echo here", connection_of(report.result)) == "here\n"
        assert agent.leased_slots() == {"slot-1.json"}

    play(scenario)


@pytest.mark.full
def test_a_stopped_guest_stays_stopped_when_the_agent_starts_again(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        guest = Guest(plane, tenant)
        await guest.provision()
        await guest.perform(TaskType.STOP)
        agent.kill()
        plane.heartbeats.clear()
        agent.start()
        await plane.until(lambda: bool(plane.heartbeats))
        with pytest.raises(ConnectionRefusedError):
            await guest.run("true")
        assert (await guest.perform(TaskType.START)).connection == guest.connection

    play(scenario)


@pytest.mark.full
def test_a_verb_is_refused_for_an_old_fence_and_for_an_allocation_that_is_not_there(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        guest = Guest(plane, tenant)
        await guest.provision()
        old = plane.body(TaskType.STOP, {"slots": SLOTS}, guest.allocation, fence=1)
        await guest.perform(TaskType.REBOOT)
        assert "older than" in _refused(await plane.result_of(await plane.hand_out(old)), FailureCode.TASK_REFUSED)
        missing = plane.body(TaskType.STOP, {"slots": [3]}, uuid.uuid4())
        detail = _refused(await plane.result_of(await plane.hand_out(missing)), FailureCode.TASK_REFUSED)
        assert "nothing is held" in detail
        half = plane.body(TaskType.REBUILD, {"slots": SLOTS}, guest.allocation)
        detail = _refused(await plane.result_of(await plane.hand_out(half)), FailureCode.TASK_REFUSED)
        assert "its parameters are not those of allocation.rebuild" in detail
        assert await guest.run("echo up") == "up\n"

    play(scenario)


@pytest.mark.full
def test_a_failed_verb_says_why_and_another_verb_repairs_the_guest(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        guest = Guest(plane, tenant)
        await guest.provision()
        task = await guest.order(TaskType.REBOOT, guest_definition="1")
        assert "fault switch" in _refused(await plane.result_of(task), FailureCode.GUEST_DEFINITION_FAILED)
        assert agent.leased_slots() == {"slot-1.json"}, "a failed verb gives up nothing"
        assert (await guest.perform(TaskType.START)).connection == guest.connection
        assert await guest.run("echo up") == "up\n"

    play(scenario)
