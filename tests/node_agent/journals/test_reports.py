"""The journal answers a task again that a restored database hands out again: it keeps reports by age, in number and in bytes."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from node_agent import journal_state
from node_agent.drivers.sandbox.records import AllocationDirectory
from node_agent.journal import Journal
from node_agent.journal_records import Finished, Reported
from node_agent.journal_state import REPORTED_MIN, JournalState
from node_agent.metrics import AgentMetrics
from node_agent.protocol import TaskType
from tests.node_agent.agents import AgentProcess, Tenant, release
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane
from tests.support.journals import accepted, body, report

BEGIN_SECONDS = 1_800_000_000
HOUR = 3_600
TASKS_AN_HOUR = 96
"""A node of eight slots with an allocation per slot every ten minutes: a provision and a release of each."""


def id_made_at(seconds: float, number: int) -> uuid.UUID:
    """A UUIDv7 of a task that the server made then."""
    return uuid.UUID(int=int(seconds * 1000) << 80 | 7 << 76 | 2 << 62 | number)


def reported(state: JournalState, seconds: float, number: int, size: int = 1) -> uuid.UUID:
    """A task of that time was finished and its report acknowledged; return its id."""
    task = body(1, fence=number, allocation=number).model_copy(update={"task_id": id_made_at(seconds, number)})
    result = report(number).model_copy(update={"result": {"evidence": "x" * size}})
    for record in (
        accepted(task),
        Finished(task_id=task.task_id, report=result),
        Reported(task_id=task.task_id),
    ):
        state.apply(record)
    return task.task_id


def test_a_release_issued_again_after_a_restore_to_12_hours_before_is_answered_by_the_journal(tmp_path: Path) -> None:
    """The journal is compacted and opened again meanwhile."""

    async def work() -> uuid.UUID:
        journal = Journal(tmp_path / "journal", AgentMetrics())
        first = reported(journal.state, BEGIN_SECONDS, 1)
        for number in range(2, 12 * TASKS_AN_HOUR + 2):
            reported(journal.state, BEGIN_SECONDS + (number - 1) * HOUR / TASKS_AN_HOUR, number)
        await journal._compact()
        journal.close()
        return first

    first = asyncio.run(work())
    again = Journal(tmp_path / "journal", AgentMetrics())
    assert again.state.tasks[first].report == report(1).model_copy(update={"result": {"evidence": "x"}})
    same = body(1, fence=1, allocation=1).model_copy(update={"task_id": first})
    assert "older than" in str(again.state.fence_objection(same)), "its fence alone would refuse it"
    again.close()


def test_reports_are_kept_by_age_but_for_the_newest_few() -> None:
    state = JournalState(reported_seconds=24 * HOUR)
    old = [reported(state, BEGIN_SECONDS, number) for number in range(1, REPORTED_MIN + 1)]
    reported(state, BEGIN_SECONDS + 23 * HOUR, 1000)
    assert all(task in state.tasks for task in old), "no older than a day"
    newest = [reported(state, BEGIN_SECONDS + 25 * HOUR, 2000 + number) for number in range(10)]
    assert len(state.tasks) == REPORTED_MIN, "few are kept whatever their age"
    assert list(state.tasks)[-10:] == newest


def test_reports_are_bounded_in_number_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_state, "REPORTED_MAX", 300)
    state = JournalState()
    ids = [reported(state, BEGIN_SECONDS, number) for number in range(1, 321)]
    assert list(state.tasks) == ids[20:]
    monkeypatch.setattr(journal_state, "REPORTED_BYTES_MAX", 100_000)
    large = [reported(state, BEGIN_SECONDS, 1000 + number, size=30_000) for number in range(4)]
    assert list(state.tasks) == large[1:], "three of them fill it"


@pytest.mark.full
def test_a_running_agent_answers_a_release_of_12_hours_before_without_a_second_effect(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        now, allocation = plane.now().timestamp(), uuid.uuid4()
        given = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([2]), allocation))
        assert (await plane.result_of(given)).outcome == "completed"
        order = plane.body(TaskType.VM_RELEASE, release([2]), allocation, task_id=id_made_at(now - 12 * HOUR, 1))
        done = await plane.result_of(await plane.hand_out(order))
        assert done.outcome == "completed"
        later = [
            await plane.hand_out(
                plane.body(TaskType.VM_RELEASE, release([3]), uuid.uuid4(), task_id=id_made_at(now, number))
            )
            for number in range(2, REPORTED_MIN + 8)
        ]
        await plane.until(lambda: all(plane.results[one] for one in later))
        await plane.until(lambda: plane.known == [])
        phases = list(plane.progress[order.task_id])
        plane.results[order.task_id].clear()
        async with plane.changed:
            plane.changed.notify_all()
        assert await plane.result_of(order.task_id) == done
        assert plane.progress[order.task_id] == phases
        assert not AllocationDirectory(agent.guest_directory(allocation)).guest_state()

    play(scenario, BERTH_AGENT_WAIT_SECONDS="0.5")
