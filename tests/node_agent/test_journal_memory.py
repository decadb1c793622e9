"""What a journal still refuses after it was compacted and opened again, and how many reports it keeps."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from node_agent import journal as journal_module
from node_agent.admission import Admitted, Refused, Trust, admit
from node_agent.clock import ServerClock
from node_agent.journal import Journal
from node_agent.journal_records import Accepted, Finished, Reported, Started
from node_agent.journal_state import REPORTED_MIN
from node_agent.metrics import AgentMetrics
from node_agent.protocol import FailureCode, HandedOutTask, TaskBody, TaskType, sign_task
from node_agent.reporter import completed, failed

KEY = Ed25519PrivateKey.generate()
NODE, NOW = uuid.UUID(int=1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
TRUST = Trust(NODE, 1, {"k": KEY.public_key()})
FILLERS = REPORTED_MIN + 56


def task_of(number: int, fence: int, *, slot: int, allocation: int) -> TaskBody:
    """A release of one slot."""
    return TaskBody(
        task_id=uuid.UUID(int=number), type=TaskType.VM_RELEASE, node_id=NODE, node_epoch=1,
        allocation_id=uuid.UUID(int=allocation), fence=fence, parameters={"slots": [slot]}, not_before=NOW,
        expires_at=NOW + dt.timedelta(hours=1), key_id="k",
    )  # fmt: skip


def accept(journal: Journal, body: TaskBody) -> None:
    """Journal that the task was accepted and began."""
    journal.append(Accepted(envelope=sign_task(body, KEY)))
    journal.append(Started(task_id=body.task_id))


def finish(journal: Journal, body: TaskBody, *, ok: bool = True, reported: bool = True) -> None:
    """Journal that the task ended, and that its report arrived."""
    report = completed(body.fence, {}) if ok else failed(body.fence, FailureCode.DRIVER_ERROR, "because")
    journal.append(Finished(task_id=body.task_id, report=report))
    if reported:
        journal.append(Reported(task_id=body.task_id))


def admitted(journal: Journal, body: TaskBody) -> bool:
    """Whether the agent would begin the task now."""
    clock = ServerClock(monotonic=lambda: 0.0)
    clock.observe(NOW)
    handed = HandedOutTask(task_id=body.task_id, envelope=sign_task(body, KEY))
    judgement = admit(handed, TRUST, journal.state, clock)
    assert isinstance(judgement, Admitted | Refused)
    return isinstance(judgement, Admitted)


COMPLETED = task_of(10, 10, slot=0, allocation=100)
FAILED = task_of(11, 11, slot=1, allocation=101)
RUNNING = task_of(12, 12, slot=2, allocation=102)
UNREPORTED = task_of(13, 13, slot=3, allocation=103)


@pytest.fixture
def reopened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    """A journal with four tasks and many later ones on other units, compacted several times and opened again."""
    monkeypatch.setattr(journal_module, "COMPACT_RECORDS", 60)

    async def live() -> None:
        journal = Journal(tmp_path / "journal", AgentMetrics())
        for body in (COMPLETED, FAILED, RUNNING, UNREPORTED):
            accept(journal, body)
        finish(journal, COMPLETED)
        finish(journal, FAILED, ok=False)
        finish(journal, UNREPORTED, reported=False)
        for number in range(FILLERS):
            body = task_of(1000 + number, 1000 + number, slot=7, allocation=1000 + number)
            accept(journal, body)
            finish(journal, body)
            if number % 20 == 0:
                await journal.sync()
        await journal.sync()
        assert journal.entries < 4 * FILLERS, "it was compacted"
        journal.close()

    asyncio.run(live())
    return Journal(tmp_path / "journal", AgentMetrics())


def test_fences_survive_compaction(reopened: Journal) -> None:
    for slot, allocation, fence in (
        (0, 100, 10),
        (1, 101, 11),
        (2, 102, 12),
        (3, 103, 13),
        (7, 999 + FILLERS, 999 + FILLERS),
    ):
        older = fence - 1
        assert not admitted(reopened, task_of(1, older, slot=slot, allocation=9)), "the slot alone refuses it"
        assert not admitted(reopened, task_of(1, older, slot=5, allocation=allocation)), "and the allocation alone"
        assert admitted(reopened, task_of(1, fence + 1, slot=slot, allocation=allocation))
    reopened.close()


def test_a_completed_fence_stays_used_after_compaction(reopened: Journal) -> None:
    assert not admitted(reopened, task_of(1, 10, slot=0, allocation=100))
    assert not admitted(reopened, task_of(1, 13, slot=3, allocation=103))
    assert not admitted(reopened, task_of(1, 12, slot=2, allocation=102)), "it may still complete"
    assert admitted(reopened, task_of(1, 11, slot=1, allocation=101)), "what failed completed nothing"
    reopened.close()


def test_a_completed_task_is_not_admitted_again_once_it_is_forgotten(reopened: Journal) -> None:
    assert COMPLETED.task_id not in reopened.state.tasks
    assert not admitted(reopened, COMPLETED)
    reopened.close()


def test_only_reported_tasks_are_forgotten_and_the_oldest_first(reopened: Journal) -> None:
    live = {task.task_id: task for task in reopened.state.live()}
    assert set(live) == {RUNNING.task_id, UNREPORTED.task_id}
    assert live[RUNNING.task_id].started
    assert live[UNREPORTED.task_id].report == completed(13, {})
    reported = [task.task_id.int for task in reopened.state.tasks.values() if task.reported]
    assert reported == list(range(1000 + FILLERS - REPORTED_MIN, 1000 + FILLERS))
    assert all(task.report is not None for task in reopened.state.tasks.values() if task.reported)
    reopened.close()


def test_more_reports_than_are_kept_wait_for_the_server(tmp_path: Path) -> None:
    """Nothing is forgotten before the server has it."""
    journal = Journal(tmp_path / "journal", AgentMetrics())
    bodies = [task_of(number, number, slot=number % 8, allocation=number) for number in range(1, 3 * REPORTED_MIN)]
    for body in bodies:
        accept(journal, body)
        finish(journal, body, reported=False)
    asyncio.run(journal.sync())
    journal.close()
    again = Journal(tmp_path / "journal", AgentMetrics())
    assert [task.task_id for task in again.state.live()] == [body.task_id for body in bodies]
    assert all(task.report is not None for task in again.state.live())
    again.close()
