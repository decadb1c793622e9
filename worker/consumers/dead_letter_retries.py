"""Retries dead letters on an operator's order: the event is read from the log and dispatched like any other."""

from __future__ import annotations

import orjson
import structlog

from orchestrator.log.commands import retire_dead_letters, settle_retry
from orchestrator.log.queries import count_dead, find_due_retries
from orchestrator.log.store.dead_letters import DueRetry
from orchestrator.operations.execution import Context
from worker.consumers.dead_letters import Failure, lasting_failure
from worker.consumers.dispatching import dispatch
from worker.consumers.events import UnreadableEvent, read_event
from worker.metrics import DEAD_LETTERS
from worker.workflows.starting import WorkflowStarter

log = structlog.get_logger()


async def retry_dead_letters(
    context: Context, starter: WorkflowStarter, consumer: str, limit: int, retention_seconds: float
) -> None:
    """Retry at most `limit` letters, the earliest order first; delete letters settled more than `retention_seconds` ago.

    Raises `RPCError` if Temporal is unavailable: the remaining retries stay due.
    """
    for due in await find_due_retries(context, consumer, limit):
        failure = await _retry(starter, due)
        settled = await settle_retry(context, due.id, None if failure is None else (failure.reason, failure.detail))
        why = None if failure is None else failure.detail
        log.info("dead_letter_retried", dead_letter_id=str(due.id), handled=failure is None, settled=settled, why=why)
    await retire_dead_letters(context, retention_seconds, limit)
    DEAD_LETTERS.set(await count_dead(context, consumer))


async def _retry(starter: WorkflowStarter, due: DueRetry) -> Failure | None:
    """Dispatch the letter's event. The lasting failure, or None if it was handled."""
    if due.document is None:
        return Failure("unreadable", f"the log has no version {due.version}: Berth did not publish this message")
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
