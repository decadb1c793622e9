"""Consumes events of the log concurrently, round robin over the tenants, and acknowledges each only after its effect."""

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
from worker.consumers.dead_letters import FailedEvents, lasting_failure
from worker.consumers.dispatching import dispatch
from worker.consumers.events import ConsumedEvent, UnreadableEvent, read_event
from worker.consumers.pulling import Puller
from worker.consumers.waiting import WaitingEvents
from worker.metrics import EVENT_AGE_SECONDS, EVENTS
from worker.supervision import StoppableGroup
from worker.workflows.starting import WorkflowStarter

log = structlog.get_logger()


class EventConsumer:
    """Handles at most `in_flight_max` events at once; `failed_events` retries or buries those that fail.

    An event that waits longer than half of `ack_wait_seconds` is kept: NATS does not deliver it again.
    """

    def __init__(
        self,
        puller: Puller,
        starter: WorkflowStarter,
        failed_events: FailedEvents,
        *,
        in_flight_max: int,
        ack_wait_seconds: float,
    ) -> None:
        self._puller = puller
        self._starter = starter
        self._slots = asyncio.Semaphore(in_flight_max)
        self._failed_events = failed_events
        self._waiting = WaitingEvents()
        self._keep_seconds = ack_wait_seconds / 2

    async def run(self) -> None:
        """Consume until cancelled; events still in flight are not acknowledged and are redelivered."""
        try:
            async with StoppableGroup() as tasks:
                tasks.create_task(self._read_ahead())
                tasks.create_task(self._keep())
                while True:
                    await self._slots.acquire()
                    tasks.create_task(self._handle(await self._waiting.take()))
        except ExceptionGroup as group:
            raise group.exceptions[0] from group

    async def _read_ahead(self) -> None:
        async for message in self._puller.messages():
            self._waiting.add(message)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._keep_seconds / 2)
            for message in self._waiting.kept_longer_than(self._keep_seconds):
                try:
                    await message.in_progress()
                except nats.errors.Error as error:
                    # Redelivered meanwhile, the event is not queued twice; handled twice, it has no further effect.
                    log.warning("event_not_kept", why=str(error))
                    break

    async def _handle(self, message: Msg) -> None:
        try:
            await self._answer(message)
        except nats.errors.Error as error:
            # An unacknowledged event is redelivered, and handling it again has no further effect.
            log.warning("acknowledgement_lost", why=str(error))
        finally:
            self._slots.release()

    async def _answer(self, message: Msg) -> None:
        try:
            event = read_event(message.data)
        except UnreadableEvent as error:
            EVENTS.labels("unknown", "unreadable").inc()
            await self._failed_events.bury_unreadable(message, str(error))
            return
        reach(CrashPoint.EVENT_BEFORE_DISPATCH)
        try:
            with _traced(event):
                outcome = await dispatch(self._starter, event)
        except Exception as error:  # noqa: BLE001 - a failure of one event must not stop the others
            EVENTS.labels(event.type, "failed").inc()
            await self._fail(message, event, error)
            return
        reach(CrashPoint.EVENT_BEFORE_ACKNOWLEDGEMENT)
        await message.ack()
        reach(CrashPoint.EVENT_AFTER_ACKNOWLEDGEMENT)
        self._failed_events.forget(message)
        EVENTS.labels(event.type, outcome).inc()
        EVENT_AGE_SECONDS.labels(event.type).observe(max(0.0, event.age_seconds()))
        log.info("event_handled", outcome=outcome, **_ids(event))

    async def _fail(self, message: Msg, event: ConsumedEvent, error: Exception) -> None:
        failure = lasting_failure(error)
        if failure is None:
            log.warning("event_failed", **_ids(event), why=str(error))
            await self._failed_events.retry_later(message)
            return
        log.warning("event_refused", **_ids(event), why=failure.detail, exc_info=failure.reason == "handler_error")
        await self._failed_events.retry_or_bury(message, event.id, event.type, failure)


def _traced(event: ConsumedEvent) -> AbstractContextManager[object]:
    """Record the event's delivery and its finished task in the allocation's trace; a span around its handling."""
    if tracing.tracer() is None:
        return nullcontext()
    about = {"berth.event_id": str(event.id), "berth.allocation_id": str(event.allocation_id)}
    tracing.record_span(event.correlation_id, f"deliver {event.type}", event.occurred_at, datetime.now(UTC), about)
    if event.task is not None:
        task = {"berth.task_id": str(event.task.id), "berth.outcome": event.task.outcome, **about}
        began, ended = event.task.queued_at, event.occurred_at
        tracing.record_span(event.correlation_id, f"task {event.task.type}", began, ended, task)
    return tracing.add_to_story(event.correlation_id, f"handle {event.type}", about, kind=SpanKind.CONSUMER)


def _ids(event: ConsumedEvent) -> dict[str, str]:
    return {"event_id": str(event.id), "event_type": event.type, "allocation_id": str(event.allocation_id)}
