"""The journal starts from any damage, keeps what came before it, and means the same after compaction."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import os
import tempfile
import uuid
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent import journal as journal_module
from node_agent.journal import Journal
from node_agent.journal_records import Accepted, AnyRecord, Finished, Reported, Started, encode, scan
from node_agent.journal_state import JournalState
from node_agent.metrics import AgentMetrics
from node_agent.protocol import FailureCode, ResultReport, TaskBody, TaskType, sign_task
from node_agent.reporter import completed, failed

KEY = Ed25519PrivateKey.generate()
NODE, WHEN = uuid.UUID(int=1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def body(number: int, fence: int, slots: tuple[int, ...] = (0,), allocation: int = 7) -> TaskBody:
    return TaskBody(
        task_id=uuid.UUID(int=number), type=TaskType.VM_PROVISION, node_id=NODE, node_epoch=1,
        allocation_id=uuid.UUID(int=allocation), fence=fence, parameters={"slots": list(slots)},
        not_before=WHEN, expires_at=WHEN + dt.timedelta(hours=1), key_id="k",
    )  # fmt: skip


def accepted(task: TaskBody) -> Accepted:
    return Accepted(envelope=sign_task(task, KEY))


def report(fence: int, ok: bool = True) -> ResultReport:
    return completed(fence, {"proof": fence}) if ok else failed(fence, FailureCode.INTERRUPTED, "because")


@st.composite
def histories(draw: st.DrawFn) -> list[AnyRecord]:
    """Lives of a few tasks, each up to some point, in order of time."""
    records: list[AnyRecord] = []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        task = body(number, number * 10, slots=(draw(st.integers(0, 3)),), allocation=draw(st.integers(1, 3)))
        life: list[AnyRecord] = [
            accepted(task),
            Started(task_id=task.task_id),
            Finished(task_id=task.task_id, report=report(task.fence, draw(st.booleans()))),
            Reported(task_id=task.task_id),
        ]
        records += life[: draw(st.integers(1, 4))]
    return records


def folded(records: list[AnyRecord]) -> JournalState:
    state = JournalState()
    for record in records:
        state.apply(record)
    return state


def meaning(state: JournalState) -> object:
    return dict(state.tasks), dict(state.newest)


def opened(directory: Path, content: bytes) -> Journal:
    (directory / "journal").write_bytes(content)
    return Journal(directory / "journal", AgentMetrics())


@settings(max_examples=60, deadline=None)
@given(histories(), st.data())
def test_a_truncated_journal_starts_with_every_whole_record(records: list[AnyRecord], data: st.DataObject) -> None:
    lines = [encode(record) for record in records]
    content = b"".join(lines)
    cut = data.draw(st.integers(0, len(content)))
    # A record is whole when only its newline is missing, too.
    ends = list(itertools.accumulate(len(line) for line in lines))
    whole = sum(end - 1 <= cut for end in ends)
    with tempfile.TemporaryDirectory() as directory:
        journal = opened(Path(directory), content[:cut])
        assert meaning(journal.state) == meaning(folded(records[:whole]))
        journal.append(Started(task_id=uuid.UUID(int=99)))
        journal.close()
        again = scan((Path(directory) / "journal").read_bytes())
        assert again.records == [*records[:whole], Started(task_id=uuid.UUID(int=99))]
        assert (again.torn_bytes, again.damaged_lines) == (0, 0)
        assert not list(Path(directory).glob("*.corrupt-*"))


@settings(max_examples=100, deadline=None)
@given(histories(), st.data())
def test_a_flipped_bit_costs_no_record_before_it_and_the_file_is_kept(
    records: list[AnyRecord], data: st.DataObject
) -> None:
    lines = [encode(record) for record in records]
    content = bytearray(b"".join(lines))
    position, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
    content[position] ^= 1 << bit
    before = 0
    while sum(len(line) for line in lines[: before + 1]) <= position:
        before += 1
    with tempfile.TemporaryDirectory() as directory:
        journal = opened(Path(directory), bytes(content))
        read = scan(bytes(content))
        assert read.records[:before] == records[:before]
        lost = [record for record in records if record not in read.records]
        assert len(lost) <= 2, "damage costs the record it hit, and the next if it hit the newline between them"
        assert meaning(journal.state) == meaning(folded(read.records))
        journal.close()
        copies = list(Path(directory).glob("journal.corrupt-1"))
        assert bool(copies) == bool(read.damaged_lines)
        assert all(copy.read_bytes() == bytes(content) for copy in copies)
        restarted = opened(Path(directory), (Path(directory) / "journal").read_bytes())
        assert meaning(restarted.state) == meaning(journal.state)
        restarted.close()
        assert len(list(Path(directory).glob("*.corrupt-*"))) == len(copies), "the damage was repaired"


@settings(max_examples=60, deadline=None)
@given(histories())
def test_compaction_changes_nothing_that_the_journal_means(records: list[AnyRecord]) -> None:
    state = folded(records)
    assert meaning(folded(list(state.snapshot()))) == meaning(state)


def test_a_journal_stays_small_and_remembers_what_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "COMPACT_RECORDS", 50)
    monkeypatch.setattr("node_agent.journal_state.REPORTED_KEPT", 3)

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


def test_fences(tmp_path: Path) -> None:
    state = folded([accepted(body(1, fence=10)), Started(task_id=uuid.UUID(int=1))])
    assert "older" in str(state.fence_objection(body(2, fence=9))), "same slot, same allocation"
    assert "older" in str(state.fence_objection(body(2, fence=9, allocation=8))), "same slot"
    assert "older" in str(state.fence_objection(body(2, fence=9, slots=(3,)))), "same allocation"
    assert state.fence_objection(body(2, fence=9, slots=(3,), allocation=8)) is None
    assert "already used" in str(state.fence_objection(body(2, fence=10))), "one that is running"
    assert state.fence_objection(body(1, fence=10)) is None, "itself"
    state.apply(Finished(task_id=uuid.UUID(int=1), report=report(10, ok=False)))
    assert state.fence_objection(body(2, fence=10)) is None, "it came to nothing, so its fence may be used once more"
    state.apply(accepted(body(2, fence=10)))
    state.apply(Finished(task_id=uuid.UUID(int=2), report=report(10)))
    assert "already used" in str(state.fence_objection(body(3, fence=10))), "one effect completes per fence"


def test_one_fsync_serves_all_who_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync

    def counted(descriptor: int) -> None:
        synced.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", counted)

    async def write(journal: Journal, number: int) -> None:
        journal.append(accepted(body(number, fence=number)))
        await journal.sync()

    async def together() -> None:
        journal = Journal(tmp_path / "journal", AgentMetrics())
        synced.clear()
        await asyncio.gather(*(write(journal, number) for number in range(1, 41)))
        assert 1 <= len(synced) <= 3
        assert len(scan((tmp_path / "journal").read_bytes()).records) == 40
        journal.close()

    asyncio.run(together())
