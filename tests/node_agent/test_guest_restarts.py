"""A guest that ends although it should run: reported, started again by policy with bounded attempts, never after a stop."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.drivers.contract import GuestState, Held, Inventory
from node_agent.drivers.noop import NoopDriver
from node_agent.drivers.restarting import RestartLimits, Restarts, RestartSchedule
from node_agent.drivers.sandbox.records import AllocationDirectory
from node_agent.metrics import AgentMetrics
from node_agent.protocol import Connection, ProvisionParameters, TaskType
from node_agent.wire.guests import GuestReport, RestartPolicy
from tests.node_agent.agents import AgentProcess, Tenant, connection_of, release
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane
from tests.support.waiting import async_wait_for

SLOTS = [1]
QUICK = {"BERTH_AGENT_GUEST_CHECK_SECONDS": "0.1", "BERTH_AGENT_RESTART_FIRST_SECONDS": "0.1"}
LIMITS = RestartLimits(attempts_max=3, first_seconds=1, most_seconds=3, steady_seconds=100)


async def _up(plane: ControlPlane, tenant: Tenant, **changes: str) -> tuple[UUID, Connection]:
    allocation = uuid.uuid4()
    body = plane.body(TaskType.VM_PROVISION, tenant.provision(SLOTS, **changes), allocation)
    return allocation, connection_of((await plane.result_of(await plane.hand_out(body))).result)


def _kill_guest(agent: AgentProcess, allocation: UUID) -> None:
    state = AllocationDirectory(agent.guest_directory(allocation)).guest_state()
    assert state is not None
    os.kill(state.pid, signal.SIGKILL)


def _reports(plane: ControlPlane) -> list[GuestReport | None]:
    return [one.state for beat in plane.heartbeats if beat.inventory for one in beat.inventory.allocations]


@pytest.mark.full
def test_a_guest_that_runs_and_does_not_answer_is_reported_and_left_alone(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation, connection = await _up(plane, tenant)
        await plane.until(lambda: GuestReport.RUNNING in _reports(plane))
        state = AllocationDirectory(agent.guest_directory(allocation)).guest_state()
        assert state is not None
        os.kill(state.pid, signal.SIGSTOP)
        try:
            await plane.until(lambda: GuestReport.UNREACHABLE in _reports(plane))
            plane.heartbeats.clear()
            await plane.until(lambda: len(_reports(plane)) >= 3)
            assert set(_reports(plane)) == {GuestReport.UNREACHABLE}, "it is not started again"
        finally:
            os.kill(state.pid, signal.SIGCONT)
        plane.heartbeats.clear()
        await plane.until(lambda: GuestReport.RUNNING in _reports(plane))
        assert AllocationDirectory(agent.guest_directory(allocation)).guest_state() == state
        assert await tenant.run(connection, "echo here") == "here\n"

    play(scenario, **QUICK, BERTH_AGENT_UNREACHABLE_SECONDS="1")


def test_a_killed_guest_is_reported_down_and_started_again_on_its_port_and_disk(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation, connection = await _up(plane, tenant)
        await tenant.run(connection, "echo kept > file")
        await plane.until(lambda: GuestReport.RUNNING in _reports(plane))
        plane.heartbeats.clear()
        _kill_guest(agent, allocation)
        await plane.until(lambda: GuestReport.DOWN in _reports(plane))
        plane.heartbeats.clear()
        await plane.until(lambda: GuestReport.RUNNING in _reports(plane))
        assert await tenant.run(connection, "cat file") == "kept\n"

    play(scenario, **QUICK)


@pytest.mark.full
def test_a_killed_guest_with_the_policy_never_stays_ended_also_after_a_new_agent(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation, connection = await _up(plane, tenant, restart_policy="never")
        _kill_guest(agent, allocation)
        await plane.until(lambda: GuestReport.ENDED in _reports(plane))
        agent.kill()
        plane.heartbeats.clear()
        agent.start()
        await plane.until(lambda: len(_reports(plane)) > 3)
        assert set(_reports(plane)) == {GuestReport.ENDED}
        with pytest.raises(ConnectionRefusedError):
            await tenant.run(connection, "true")

    play(scenario, **QUICK)


def test_a_stopped_guest_is_not_started_again(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation, connection = await _up(plane, tenant)
        stop = await plane.hand_out(plane.body(TaskType.STOP, release(SLOTS), allocation))
        assert (await plane.result_of(stop)).outcome == "completed"
        plane.heartbeats.clear()
        await plane.until(lambda: len(_reports(plane)) > 5)
        assert set(_reports(plane)) == {GuestReport.STOPPED}
        with pytest.raises(ConnectionRefusedError):
            await tenant.run(connection, "true")

    play(scenario, **QUICK)


def test_the_default_policy_is_left_out_of_a_task() -> None:
    of = {"gpu_model": "H200", "ssh_public_keys": ["k"], "hostname": "h", "slots": [0]}
    image = {"name": "i", "url": "file:///i", "sha256": "ab" * 32}
    default = ProvisionParameters.model_validate({**of, "image": image})
    assert default.restart_policy is RestartPolicy.ALWAYS
    assert "restart_policy" not in default.model_dump(mode="json")
    never = ProvisionParameters.model_validate({**of, "image": image, "restart_policy": "never"})
    assert never.model_dump(mode="json")["restart_policy"] == "never"


@given(st.lists(st.floats(0, 20), max_size=60))
def test_attempts_are_bounded_and_their_pauses_double(pauses: list[float]) -> None:
    schedule, now, begun = RestartSchedule(LIMITS), 50.0, list[float]()
    for pause in pauses:
        if schedule.is_due(now):
            schedule.begin(now)
            begun.append(now)
        now += pause
    assert len(begun) <= LIMITS.attempts_max
    assert all(later - earlier >= least for earlier, later, least in zip(begun, begun[1:], (1, 2), strict=False))
    assert schedule.is_exhausted == (len(begun) == LIMITS.attempts_max)


class Failing(NoopDriver):
    """Its restarts fail, or never end."""

    def __init__(self, hangs: bool) -> None:
        super().__init__("127.0.0.1")
        self.hangs = hangs
        self.calls = 0
        self.ended = 0

    async def restart(self, allocation_id: UUID) -> bool:
        self.calls += 1
        try:
            if self.hangs:
                await asyncio.Event().wait()
        finally:
            self.ended += 1
        raise OSError("it does not start")


def _restarts(driver: Failing) -> tuple[Restarts, list[float]]:
    now = [50.0]
    return Restarts(driver, AgentMetrics(), LIMITS, lambda: now[0]), now


def test_after_the_last_attempt_the_guest_is_reported_ended_until_it_has_run_steadily() -> None:
    async def scene() -> None:
        driver = Failing(hangs=False)
        restarts, now = _restarts(driver)
        down = Held(uuid.uuid4(), [0], 7, GuestState.DOWN)
        reports: list[object] = []
        for _ in range(8):
            restarts.start_due(Inventory([down]))
            await async_wait_for(lambda: driver.ended == min(len(reports) + 1, LIMITS.attempts_max), "the attempt ends")
            reports.append(restarts.report_of(down))
            now[0] += 10
        assert driver.calls == 3
        assert reports == [GuestReport.DOWN] * 2 + [GuestReport.ENDED] * 6
        running = Held(down.allocation_id, [0], 7, GuestState.RUNNING)
        now[0] += 100
        restarts.notice(Inventory([running]))
        assert restarts.report_of(down) is GuestReport.DOWN

    asyncio.run(scene())


def test_a_task_ends_the_restart_under_way_and_holds_off_others() -> None:
    async def scene() -> None:
        driver = Failing(hangs=True)
        restarts, now = _restarts(driver)
        down = Held(uuid.uuid4(), [0], 7, GuestState.DOWN)
        restarts.start_due(Inventory([down]))
        await async_wait_for(lambda: driver.calls == 1, "the restart begins")
        assert driver.ended == 0
        async with restarts.held_off(down.allocation_id):
            assert driver.ended == 1, "it has ended before the task begins"
            now[0] += 10
            restarts.start_due(Inventory([down]))
            assert not restarts.is_restarting(down.allocation_id)
        restarts.start_due(Inventory([down]))
        await async_wait_for(lambda: driver.calls == 2, "the next restart begins")
        await restarts.stop()
        assert driver.ended == 2

    asyncio.run(scene())
