"""Dead letters whose retry an operator asked for: the event of the log goes to the same handler as any other."""

from __future__ import annotations

import orjson
import structlog

from orchestrator.log.commands.dead_letters import retire_dead_letters, settle_retry
from orchestrator.log.queries import count_dead, find_due_retries
from orchestrator.log.store.dead_letters import DueRetry
from orchestrator.operations.execution import Context
from worker.consumers.dispatching import dispatch
from worker.consumers.events import UnreadableEvent, read_event
from worker.consumers.giving_up import Failure, lasting_failure
from worker.metrics import DEAD_LETTERS
from worker.workflows.starting import WorkflowStarter

log = structlog.get_logger()


async def retry_dead_letters(
    context: Context, starter: WorkflowStarter, consumer: str, limit: int, retention_seconds: float
) -> None:
    """Handle what is due, the longest asked first; forget what was settled long ago; count what is dead.

    Raises `RPCError` where Temporal cannot be asked now: what is due stays due.
    """
    for due in await find_due_retries(context, consumer, limit):
        failure = await _handle(starter, due)
        settled = await settle_retry(context, due.id, None if failure is None else (failure.reason, failure.detail))
        why = None if failure is None else failure.detail
        log.info("dead_letter_retried", dead_letter_id=str(due.id), handled=failure is None, settled=settled, why=why)
    await retire_dead_letters(context, retention_seconds, limit)
    DEAD_LETTERS.set(await count_dead(context, consumer))


async def _handle(starter: WorkflowStarter, due: DueRetry) -> Failure | None:
    """Why the event was not handled this time either, or None."""
    if due.document is None:
        return Failure("unreadable", f"the log has no version {due.version}: the message was somebody else's")
    try:
        event = read_event(orjson.dumps(due.document))
    except UnreadableEvent as error:
        return Failure("unreadable", str(error))
    try:
        await dispatch(starter, event)
    except Exception as error:
        failure = lasting_failure(error)
        if failure is None:
            raise
        return failure
    return None
