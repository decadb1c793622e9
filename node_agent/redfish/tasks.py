"""Tasks of a BMC: an answer 202 is polled until its task ends or a deadline has passed, which leaves the outcome unknown."""

from __future__ import annotations

from typing import Final

from node_agent.redfish.documents import Document, message_ids, messages
from node_agent.redfish.problems import Busy, OutcomeUnknown, TaskFailed, Unreachable
from node_agent.redfish.quirks import PARTIAL_TASK
from node_agent.redfish.session import Session
from node_agent.redfish.wire import Answer

NO_TASK: Final = "NoTask"
_FAILED: Final = frozenset({"Exception", "Killed", "Cancelled", "Cancelling", "Interrupted"})
_ENDED: Final = _FAILED | {"Completed"}


async def finished(session: Session, answer: Answer, seconds: float) -> tuple[str, tuple[str, ...]]:
    """Wait for the task of a command's answer; its state and message ids. `NoTask` if the answer names no task.

    Raises TaskFailed, or OutcomeUnknown if the task does not end in time or can no longer be read.
    """
    if answer.status != 202:
        return _ended(Document(answer.path, answer.json_or_empty())) or (NO_TASK, ())
    named = Document(answer.path, answer.json_or_empty())
    link = answer.headers.get("Location") or named.text("TaskMonitor") or named.text("@odata.id")
    if not link:
        raise OutcomeUnknown(f"{answer.path} was answered 202 without a task")
    path, clock = session.wire.path_of(link, "the task"), session.wire.clock
    until = clock.now() + seconds
    while clock.now() < until:
        await clock.sleep(session.wire.deadlines.poll_seconds)
        try:
            polled = await session.answer_of(path, attempts=1)
        except (Unreachable, Busy):
            continue  # a firmware update may restart the BMC
        if (ended := _of(session, polled)) is not None:
            return ended
    raise OutcomeUnknown(f"the task {path} did not end within {seconds:g} s")


def _of(session: Session, polled: Answer) -> tuple[str, tuple[str, ...]] | None:
    if polled.status in (404, 405, 410, 501):
        raise OutcomeUnknown(f"the task {polled.path} was answered {polled.status}")
    task = Document(polled.path, polled.json_or_empty())
    ended = _ended(task)
    if ended is None and polled.status == 202:
        if not task.text("TaskState"):
            session.wire.met(PARTIAL_TASK)
        return None
    # A monitor answers as the command would have: without a TaskState, any 2xx but 202 is the end.
    return ended if ended is not None else (None if task.text("TaskState") else ("Completed", ()))


def _ended(task: Document) -> tuple[str, tuple[str, ...]] | None:
    state, ids = task.text("TaskState"), message_ids(messages(task.data, "Messages"))
    if state not in _ENDED:
        return None
    if state in _FAILED or task.text("TaskStatus") == "Critical":
        raise TaskFailed(", ".join((f"the task {task.path} ended as {state}", *ids)))
    return state, ids
