"""The worker's consumer: takes events, a bounded number at once, and acknowledges each only after its effect."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime

import nats.errors
import structlog
from nats.aio.msg import Msg
from opentelemetry.trace import SpanKind

from orchestrator import tracing
from orchestrator.crash_points import CrashPoint, reach
from worker.consumers.dispatching import dispatch
from worker.consumers.events import ConsumedEvent, UnreadableEvent, read_event
from worker.consumers.giving_up import GivingUp, lasting_failure
from worker.consumers.pulling import Puller
from worker.metrics import EVENT_AGE_SECONDS, EVENTS
from worker.workflows.starting import WorkflowStarter

log = structlog.get_logger()


class EventConsumer:
    """Handles at most `in_flight_max` events at once; what becomes of one that fails is decided by `giving_up`."""

    def __init__(self, puller: Puller, starter: WorkflowStarter, giving_up: GivingUp, *, in_flight_max: int) -> None:
        self._puller = puller
        self._starter = starter
        self._places = asyncio.Semaphore(in_flight_max)
        self._giving_up = giving_up

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
            await self._giving_up.bury_unreadable(message, str(error))
            return
        reach(CrashPoint.EVENT_BEFORE_DISPATCH)
        try:
            with _told(event):
                outcome = await dispatch(self._starter, event)
        except Exception as error:  # noqa: BLE001 - what one event meets must keep no other waiting
            EVENTS.labels(event.type, "failed").inc()
            await self._fail(message, event, error)
            return
        reach(CrashPoint.EVENT_BEFORE_ACKNOWLEDGEMENT)
        await message.ack()
        reach(CrashPoint.EVENT_AFTER_ACKNOWLEDGEMENT)
        self._giving_up.forget(message)
        EVENTS.labels(event.type, outcome).inc()
        EVENT_AGE_SECONDS.labels(event.type).observe(max(0.0, event.age_seconds()))
        log.info("event_handled", outcome=outcome, **_ids(event))

    async def _fail(self, message: Msg, event: ConsumedEvent, error: Exception) -> None:
        failure = lasting_failure(error)
        if failure is None:
            log.warning("event_failed", **_ids(event), why=str(error))
            await self._giving_up.put_off(message)
            return
        log.warning("event_refused", **_ids(event), why=failure.detail, exc_info=failure.reason == "handler_error")
        await self._giving_up.put_off_or_bury(message, event.id, event.type, failure)


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
