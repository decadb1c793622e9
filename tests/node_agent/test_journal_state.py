"""What the agent's journal keeps: its state over compaction, the newest fences, and one commit for concurrent syncs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings

from node_agent import journal as journal_module
from node_agent.journal import Journal
from node_agent.journal_file import JournalFile, read_journal
from node_agent.journal_records import AnyRecord, Finished, Reported, Started, Wiped
from node_agent.journal_state import ALLOCATIONS_WIPED_KEPT, JournalState
from node_agent.metrics import AgentMetrics
from node_agent.wiping.devices import DeviceWipe, WipeLevel
from tests.support.journals import (
    accepted,
    body,
    folded,
    histories,
    meaning,
    report,
)


@settings(max_examples=60, deadline=None)
@given(histories())
def test_compaction_keeps_the_journals_state(records: list[AnyRecord]) -> None:
    state = folded(records)
    assert meaning(folded(list(state.snapshot()))) == meaning(state)


def test_compaction_bounds_the_journal_and_keeps_live_tasks_and_fences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "COMPACT_RECORDS", 50)
    monkeypatch.setattr("node_agent.journal_state.REPORTED_MIN", 3)

    async def many_tasks() -> None:
        journal = Journal(tmp_path / "journal", AgentMetrics())
        journal.append(accepted(body(1, fence=1, slots=(5,), allocation=1)))
        for number in range(2, 200):
            task = body(number, fence=number, allocation=number)
            journal.append(accepted(task))
            journal.append(Started(task_id=task.task_id))
            journal.append(Finished(task_id=task.task_id, report=report(task.fence)))
            journal.append(Reported(task_id=task.task_id))
            await journal.sync()
        journal.close()

    asyncio.run(many_tasks())
    journal = Journal(tmp_path / "journal", AgentMetrics())
    assert journal.entries < 600, "four records a task would be 800"
    assert [task.task_id for task in journal.state.live()] == [uuid.UUID(int=1)]
    assert journal.state.fence_objection(body(500, fence=198, allocation=500)) is not None
    assert journal.state.fence_objection(body(500, fence=200, allocation=500)) is None
    journal.close()


def test_a_fence_is_refused_when_older_or_already_completed(tmp_path: Path) -> None:
    state = folded([accepted(body(1, fence=10)), Started(task_id=uuid.UUID(int=1))])
    assert "older" in str(state.fence_objection(body(2, fence=9))), "same slot, same allocation"
    assert "older" in str(state.fence_objection(body(2, fence=9, allocation=8))), "same slot"
    assert "older" in str(state.fence_objection(body(2, fence=9, slots=(3,)))), "same allocation"
    assert state.fence_objection(body(2, fence=9, slots=(3,), allocation=8)) is None
    assert "already used" in str(state.fence_objection(body(2, fence=10))), "one that is running"
    assert state.fence_objection(body(1, fence=10)) is None, "itself"
    state.apply(Finished(task_id=uuid.UUID(int=1), report=report(10, ok=False)))
    assert state.fence_objection(body(2, fence=10)) is None, "it had no effect, so its fence may be used once more"
    state.apply(accepted(body(2, fence=10)))
    state.apply(Finished(task_id=uuid.UUID(int=2), report=report(10)))
    assert "already used" in str(state.fence_objection(body(3, fence=10))), "one effect completes per fence"


def test_one_commit_serves_all_concurrent_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[int] = []
    real = JournalFile.append

    def counted(file: JournalFile, records: Sequence[AnyRecord]) -> None:
        commits.append(len(records))
        real(file, records)

    monkeypatch.setattr(JournalFile, "append", counted)

    async def write(journal: Journal, number: int) -> None:
        journal.append(accepted(body(number, fence=number)))
        await journal.sync()

    async def together() -> None:
        journal = Journal(tmp_path / "journal", AgentMetrics())
        await asyncio.gather(*(write(journal, number) for number in range(1, 41)))
        assert 1 <= len(commits) <= 3
        assert sum(commits) == len(read_journal(tmp_path / "journal")) == 40
        journal.close()

    asyncio.run(together())


def test_a_snapshot_has_the_proofs_of_the_newest_allocations() -> None:
    state, folded = JournalState(), JournalState()
    device = DeviceWipe(device="nvme0", kind="disk", method="sanitize", level=WipeLevel.PURGE, proven=True)
    for number in range(ALLOCATIONS_WIPED_KEPT + 5):
        state.apply(Wiped(allocation_id=uuid.UUID(int=number), devices=[device]))
    for record in state.snapshot():
        folded.apply(record)
    assert list(folded.wiped) == [uuid.UUID(int=number) for number in range(5, ALLOCATIONS_WIPED_KEPT + 5)]
    assert folded.wiped[uuid.UUID(int=9)].devices == [device]
