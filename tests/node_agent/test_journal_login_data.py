"""User data and SSH keys leave the journal and its write-ahead log once the server has the task's report."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

from node_agent.journal import Journal
from node_agent.journal_file import JournalFile
from node_agent.journal_records import AnyRecord, Finished, Reported, Started
from node_agent.metrics import AgentMetrics
from node_agent.protocol import TaskBody
from tests.support.journals import accepted, body, report

MARKER = "marker-7d02c94b61"


def marked(number: int) -> TaskBody:
    """A provisioning task with user data and an SSH key."""
    return body(number, fence=number, allocation=number, user_data=MARKER, ssh_public_keys=[f"ssh-ed25519 {MARKER}"])


def life_of(task: TaskBody) -> list[AnyRecord]:
    """The records of a task that was carried out and reported."""
    finished = Finished(task_id=task.task_id, report=report(task.fence))
    return [accepted(task), Started(task_id=task.task_id), finished, Reported(task_id=task.task_id)]


def bytes_of(path: Path) -> bytes:
    """The database and its write-ahead log as they lie on the disk."""
    wal = path.with_name("journal-wal")
    return path.read_bytes() + (wal.read_bytes() if wal.exists() else b"")


def payload_of(task: TaskBody) -> bytes:
    """A part of the task's payload as the journal contains it."""
    return accepted(task).envelope.payload.encode()[100:400]


def test_a_reported_task_leaves_no_user_data_in_the_journal(tmp_path: Path) -> None:
    reported, running = marked(1), marked(2)
    path = tmp_path / "journal"

    async def way() -> None:
        journal = Journal(path, AgentMetrics())
        for record in [*life_of(reported)[:3], accepted(running)]:
            journal.append(record)
        await journal.sync()
        assert payload_of(reported) in bytes_of(path), "an unreported task is needed"
        journal.append(Reported(task_id=reported.task_id))
        await journal.sync()
        assert payload_of(reported) not in bytes_of(path)
        assert payload_of(running) in bytes_of(path), "another task is needed still"
        journal.close()

    asyncio.run(way())
    journal = Journal(path, AgentMetrics())
    assert [task.task_id for task in journal.state.live()] == [running.task_id]
    assert journal.state.fence_objection(marked(1)) is not None, "its fence is still known"
    assert MARKER.encode() in base64.b64decode(accepted(running).envelope.payload)
    journal.close()


def test_a_kill_before_the_removal_is_made_good_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    file = JournalFile(path)
    for record in life_of(marked(1)):
        file.append([record])
    file.close()
    assert payload_of(marked(1)) in bytes_of(path)
    journal = Journal(path, AgentMetrics())
    assert payload_of(marked(1)) not in bytes_of(path)
    assert journal.state.tasks[marked(1).task_id].reported
    journal.close()
