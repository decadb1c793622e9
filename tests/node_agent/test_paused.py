"""An agent that is stopped in the middle and goes on later: what it no longer owns it undoes, and says so once (P7, P8)."""

from __future__ import annotations

import datetime as dt
import signal
import uuid

import pytest

from node_agent.journal_file import read_journal
from node_agent.journal_records import Reported
from node_agent.protocol import FailureCode, TaskType
from tests.node_agent.agents import AgentProcess, Tenant, connection_of, release
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane
from tests.support.agent_faults import code

SLOW_BOOT = {"slow_phase_seconds": "2", "slow_phase": "boot"}


def pause(agent: AgentProcess) -> None:
    """SIGSTOP."""
    assert agent.process is not None
    agent.process.send_signal(signal.SIGSTOP)


def resume(agent: AgentProcess) -> None:
    """SIGCONT."""
    assert agent.process is not None
    agent.process.send_signal(signal.SIGCONT)


def reported(agent: AgentProcess) -> list[uuid.UUID]:
    """The tasks that the agent's journal calls reported, in order."""
    records = read_journal(agent.state_dir / "journal")
    return [record.task_id for record in records if isinstance(record, Reported)]


@pytest.mark.full
def test_a_newer_holder_of_a_slot_ends_an_older_provision_of_it(play: Play) -> None:
    """Its allocation was taken off the node on an operator's word while the agent stood still."""

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        older, newer = uuid.uuid4(), uuid.uuid4()
        slow = tenant.provision([0, 1], faults=SLOW_BOOT)
        first = await plane.hand_out(plane.body(TaskType.VM_PROVISION, slow, older))
        await plane.until(lambda: "image" in plane.progress[first])
        pause(agent)
        second = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([1]), newer))
        resume(agent)
        assert code(await plane.result_of(first)) is FailureCode.INTERRUPTED
        report = await plane.result_of(second)
        assert report.outcome == "completed"
        assert await tenant.run(connection_of(report.result), "echo here") == "here\n"
        assert agent.leased_slots() == {"slot-1.json"}
        assert not agent.guest_directory(older).exists()
        assert len(plane.results[first]) == 1

    play(scenario, BERTH_AGENT_WAIT_SECONDS="0.5")


def test_a_provision_released_while_the_agent_was_stopped_is_undone(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()
        expires_at = plane.now() + dt.timedelta(seconds=5)
        slow = tenant.provision([0], faults=SLOW_BOOT)
        first = await plane.hand_out(plane.body(TaskType.VM_PROVISION, slow, allocation, expires_at=expires_at))
        await plane.until(lambda: "image" in plane.progress[first])
        pause(agent)
        plane.superseded.add(first)
        second = await plane.hand_out(plane.body(TaskType.VM_RELEASE, release([0]), allocation))
        resume(agent)
        assert code(await plane.result_of(first)) is FailureCode.INTERRUPTED
        assert (await plane.result_of(second)).outcome == "completed"
        await plane.until(lambda: plane.waits > 0 and plane.known == [])
        assert agent.leased_slots() == set()
        assert sorted(reported(agent)) == sorted([first, second])
        assert [len(plane.results[task]) for task in (first, second)] == [1, 1]
        agent.kill()
        agent.start()
        await plane.until(lambda: plane.heartbeats[-1].inventory is not None)
        assert len(plane.results[first]) == 1, "a late result is reported once, not at every start"

    play(scenario, BERTH_AGENT_WAIT_SECONDS="0.5")


def test_a_task_that_expired_while_the_agent_was_stopped_never_begins(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()
        pause(agent)
        expires_at = plane.now() + dt.timedelta(seconds=60)
        body = plane.body(TaskType.VM_PROVISION, tenant.provision([0]), allocation, expires_at=expires_at)
        task = await plane.hand_out(body)
        # The server's clock, which is the one that counts, has passed the deadline when the agent goes on.
        plane.clock_offset = dt.timedelta(seconds=90)
        resume(agent)
        assert code(await plane.result_of(task)) is FailureCode.TASK_REFUSED
        assert not agent.guest_directory(allocation).exists()
        assert agent.leased_slots() == set()

    play(scenario, BERTH_AGENT_WAIT_SECONDS="0.5")
