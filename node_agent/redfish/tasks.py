"""Tasks of a BMC: an answer 202 is polled until its task ends or a deadline has passed, which leaves the outcome unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from node_agent.redfish.documents import Document, message_ids, messages
from node_agent.redfish.problems import Busy, OutcomeUnknown, TaskFailed, Unreachable
from node_agent.redfish.quirks import PARTIAL_TASK
from node_agent.redfish.session import Session
from node_agent.redfish.wire import Answer

NO_TASK: Final = "NoTask"
_FAILED: Final = frozenset({"Exception", "Killed", "Cancelled", "Cancelling", "Interrupted"})
_ENDED: Final = _FAILED | {"Completed"}
_RESET_REQUIRED: Final = (".ResetRequired", ".ResetRecommended")
"""Messages of the Base registry: their first argument is the URI of what is to be reset."""


@dataclass(frozen=True)
class EndedTask:
    """A task that has ended well. `resets`: what its messages say must be reset, as URIs."""

    state: str
    messages: tuple[str, ...] = ()
    resets: tuple[str, ...] = ()


async def finished(session: Session, answer: Answer, seconds: float) -> EndedTask:
    """Wait for the task of a command's answer. Its state is `NoTask` if the answer names no task.

    Raises TaskFailed, or OutcomeUnknown if the task does not end in time or can no longer be read.
    """
    path = task_of(session, answer)
    if path is None:
        return ended_at_once(answer)
    clock = session.wire.clock
    until = clock.now() + seconds
    while clock.now() < until:
        await clock.sleep(session.wire.deadlines.poll_seconds)
        try:
            ended = await poll(session, path)
        except (Unreachable, Busy):
            continue  # a firmware update may restart the BMC
        if ended is not None:
            return ended
    raise OutcomeUnknown(f"the task {path} did not end within {seconds:g} s")


def task_of(session: Session, answer: Answer) -> str | None:
    """The path of the task that an answer names; None unless it is a 202. Raises OutcomeUnknown for a 202 that names none."""
    if answer.status != 202:
        return None
    named = Document(answer.path, answer.json_or_empty())
    link = answer.headers.get("Location") or named.text("TaskMonitor") or named.text("@odata.id")
    if not link:
        raise OutcomeUnknown(f"{answer.path} was answered 202 without a task")
    return session.wire.path_of(link, "the task")


def ended_at_once(answer: Answer) -> EndedTask:
    """What an answer says that names no task. Raises TaskFailed."""
    return _ended(Document(answer.path, answer.json_or_empty())) or EndedTask(NO_TASK)


async def poll(session: Session, path: str) -> EndedTask | None:
    """One read of a task; None: it has not ended.

    Raises TaskFailed, OutcomeUnknown if the BMC does not know the task, and what a read raises.
    """
    polled = await session.answer_of(path, attempts=1)
    if polled.status in (404, 405, 410, 501):
        raise OutcomeUnknown(f"the task {polled.path} was answered {polled.status}")
    task = Document(polled.path, polled.json_or_empty())
    ended = _ended(task)
    if ended is None and polled.status == 202:
        if not task.text("TaskState"):
            session.wire.met(PARTIAL_TASK)
        return None
    # A monitor answers as the command would have: without a TaskState, any 2xx but 202 is the end.
    return ended if ended is not None else (None if task.text("TaskState") else EndedTask("Completed"))


def _ended(task: Document) -> EndedTask | None:
    found = messages(task.data, "Messages")
    state, ids = task.text("TaskState"), message_ids(found)
    if state not in _ENDED:
        return None
    if state in _FAILED or task.text("TaskStatus") == "Critical":
        raise TaskFailed(", ".join((f"the task {task.path} ended as {state}", *ids)))
    named = [one.texts("MessageArgs") for one in found if one.text("MessageId").endswith(_RESET_REQUIRED)]
    return EndedTask(state, ids, tuple(arguments[0] for arguments in named if arguments))
