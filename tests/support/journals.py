"""Records, histories and files of an agent's journal, for tests."""

from __future__ import annotations

import datetime as dt
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import strategies as st

from node_agent.journal_file import JournalFile
from node_agent.journal_records import Accepted, AnyRecord, Finished, Reported, Started
from node_agent.journal_state import JournalState
from node_agent.protocol import FailureCode, ResultReport, TaskBody, TaskType, sign_task
from node_agent.reporter import completed, failed

KEY = Ed25519PrivateKey.generate()
NODE, WHEN = uuid.UUID(int=1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def body(number: int, fence: int, slots: tuple[int, ...] = (0,), allocation: int = 7, **parameters: object) -> TaskBody:
    return TaskBody(
        task_id=uuid.UUID(int=number), type=TaskType.VM_PROVISION, node_id=NODE, node_epoch=1,
        allocation_id=uuid.UUID(int=allocation), fence=fence, parameters={"slots": list(slots), **parameters},
        not_before=WHEN, expires_at=WHEN + dt.timedelta(hours=1), key_id="k",
    )  # fmt: skip


def accepted(task: TaskBody) -> Accepted:
    return Accepted(envelope=sign_task(task, KEY))


def report(fence: int, ok: bool = True) -> ResultReport:
    return completed(fence, {"proof": fence}) if ok else failed(fence, FailureCode.INTERRUPTED, "because")


@st.composite
def histories(draw: st.DrawFn) -> list[AnyRecord]:
    """Lifecycles of a few tasks, each up to some point, in order of time."""
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


@dataclass(frozen=True)
class Files:
    """The raw files of a journal as a crash would leave them."""

    main: bytes
    wal: bytes

    def put(self, directory: Path) -> Path:
        (directory / "journal").write_bytes(self.main)
        (directory / "journal-wal").write_bytes(self.wal)
        return directory / "journal"


def written(records: Sequence[AnyRecord], checkpointed: int = 0) -> tuple[Files, list[int]]:
    """Commit each record alone, the first `checkpointed` of them moved into the database file.

    Return the files and the size of the WAL after each of the other commits.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "journal"
        file = JournalFile(path)
        file._connection.execute("PRAGMA synchronous = OFF")  # the same bytes, sooner
        for record in records[:checkpointed]:
            file.append([record])
        if checkpointed:
            file.close()
            file = JournalFile(path)
            file._connection.execute("PRAGMA synchronous = OFF")
        sizes = []
        for record in records[checkpointed:]:
            file.append([record])
            sizes.append(wal_size(path))
        wal = path.with_name("journal-wal")
        files = Files(path.read_bytes(), wal.read_bytes() if wal.exists() else b"")
        file.close()
        return files, sizes


def wal_size(path: Path) -> int:
    return path.with_name("journal-wal").stat().st_size


def records_of(path: Path) -> list[AnyRecord]:
    """Open and close a journal that no process uses."""
    file = JournalFile(path)
    file.close()
    return [row.record for row in file.found.rows]
