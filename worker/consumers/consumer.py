"""The worker's consumer: takes events, a bounded number at once, and acknowledges each only after its effect."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime

import nats.errors
import structlog
from nats.aio.msg import Msg
from opentelemetry.trace import SpanKind
from temporalio.service import RPCError

from orchestrator import tracing
from orchestrator.crash_points import CrashPoint, reach
from worker.consumers.dispatching import dispatch
from worker.consumers.events import ConsumedEvent, UnreadableEvent, read_event
from worker.consumers.pulling import Puller
from worker.metrics import EVENT_AGE_SECONDS, EVENTS
from worker.workflows.starting import WorkflowStarter

log = structlog.get_logger()

LOGGED_BYTES_MAX = 500


class EventConsumer:
    """Handles at most `in_flight_max` events at once; one that fails comes again after `retry_seconds`."""

    def __init__(self, puller: Puller, starter: WorkflowStarter, *, in_flight_max: int, retry_seconds: float) -> None:
        self._puller = puller
        self._starter = starter
        self._places = asyncio.Semaphore(in_flight_max)
        self._retry_seconds = retry_seconds

    async def run(self) -> None:
        """Consume until cancelled; what is in flight then, unacknowledged, comes again."""
        try:
            async with asyncio.TaskGroup() as handlers:
                async for message in self._puller.messages():
                    await self._places.acquire()
                    handlers.create_task(self._handle(message))
        except ExceptionGroup as group:
            raise group.exceptions[0] from group

    async def _handle(self, message: Msg) -> None:
        try:
            await self._answer(message)
        except nats.errors.Error as error:
            # Not acknowledged, so it comes again; everything here may be repeated.
            log.warning("acknowledgement_lost", why=str(error))
        finally:
            self._places.release()

    async def _answer(self, message: Msg) -> None:
        try:
            event = read_event(message.data)
        except UnreadableEvent as error:
            EVENTS.labels("unknown", "unreadable").inc()
            excerpt = message.data[:LOGGED_BYTES_MAX].decode(errors="replace")
            log.error("event_unreadable", subject=message.subject, why=str(error), excerpt=excerpt)
            await message.term()
            return
        reach(CrashPoint.EVENT_BEFORE_DISPATCH)
        try:
            with _told(event):
                outcome = await dispatch(self._starter, event)
        except RPCError as error:
            EVENTS.labels(event.type, "failed").inc()
            log.warning("event_failed", **_ids(event), why=f"{error.status.name}: {error.message}")
            await message.nak(delay=self._retry_seconds)
            return
        reach(CrashPoint.EVENT_BEFORE_ACKNOWLEDGEMENT)
        await message.ack()
        reach(CrashPoint.EVENT_AFTER_ACKNOWLEDGEMENT)
        EVENTS.labels(event.type, outcome).inc()
        EVENT_AGE_SECONDS.labels(event.type).observe(max(0.0, event.age_seconds()))
        log.info("event_handled", outcome=outcome, **_ids(event))


def _told(event: ConsumedEvent) -> AbstractContextManager[object]:
    """The event in its allocation's trace: its way here, the node's task if it ended one, and what it leads to."""
    if tracing.tracer() is None:
        return nullcontext()
    about = {"berth.event_id": str(event.id), "berth.allocation_id": str(event.allocation_id)}
    tracing.tell_story(event.correlation_id, f"deliver {event.type}", event.occurred_at, datetime.now(UTC), about)
    if event.task is not None:
        task = {"berth.task_id": str(event.task.id), "berth.outcome": event.task.outcome, **about}
        began, ended = event.task.queued_at, event.occurred_at
        tracing.tell_story(event.correlation_id, f"task {event.task.type}", began, ended, task)
    return tracing.add_to_story(event.correlation_id, f"handle {event.type}", about, kind=SpanKind.CONSUMER)


def _ids(event: ConsumedEvent) -> dict[str, str]:
    return {"event_id": str(event.id), "event_type": event.type, "allocation_id": str(event.allocation_id)}
