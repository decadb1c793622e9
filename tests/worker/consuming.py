"""A stream, a database, and the worker's consumer over them, with the effects in a test's hand."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import nats
import orjson
from nats.aio.client import Client
from nats.js import JetStreamContext
from temporalio.service import RPCError, RPCStatusCode

from migrations.roles import Role
from orchestrator.operations.execution import Context
from tests.allocations.driving import rows_of
from tests.allocations.seeding import make_context
from tests.databases import as_role
from tests.support.waiting import async_wait_for
from worker.consumers.consumer import EventConsumer
from worker.consumers.dead_letters import FailedEvents
from worker.consumers.durable import DurableConsumer
from worker.consumers.pulling import Puller
from worker.health import WorkerHealth
from worker.settings import Settings
from worker.supervision import end_all
from worker.workflows.starting import WorkflowStarter

STREAM, CONSUMER = "BERTH_LOG", "berth-worker"
SUBJECT = "berth.events.operator.task.finished"
FOREIGN_SUBJECT = "berth.events.operator.test.happened"
IN_FLIGHT_MAX = 4


class Effects:
    """Takes the place of Temporal: records each wake, and fails or blocks as the test says."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.tried: list[str] = []
        self.blocked: set[str] = set()
        self.refused: set[str] = set()

    async def signal_task_finished(self, workflow_id: str, task_id: uuid.UUID) -> bool:
        """The effect of `task.finished`."""
        self.tried.append(workflow_id)
        await async_wait_for(lambda: workflow_id not in self.blocked, "the effect to be let go")
        if workflow_id in self.refused:
            raise RPCError("refused", RPCStatusCode.INVALID_ARGUMENT, b"")
        self.done.append(workflow_id)
        return True


def finished_event(notify: str) -> bytes:
    """An event that wakes `notify`."""
    data = {
        "task_id": str(uuid.uuid4()), "allocation_id": None, "type": "diag.health_probe", "outcome": "completed",
        "notify": notify, "queued_at": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    return orjson.dumps({
        "id": str(uuid.uuid4()), "type": "berth.task.finished", "time": "2026-01-01T00:00:00+00:00",
        "correlationid": str(uuid.uuid4()), "data": data,
    })  # fmt: skip


class Stage:
    """A stream, a database, and consumers that start and are cut off at the test's word."""

    def __init__(self, url: str, client: Client, context: Context, ack_wait_seconds: float = 3.0) -> None:
        self.url = url
        self.client = client
        self.jetstream = client.jetstream()
        self.context = context
        self.effects = Effects()
        self.settings = Settings(
            database_url=as_role(url, Role.WORKER), nats_url="nats://127.0.0.1:1", temporal_address="127.0.0.1:1",
            task_signing_key_file=Path("none"), temporal_payload_key_file=Path("none"),
            worker_ack_wait_seconds=ack_wait_seconds, worker_pull_heartbeat_seconds=0.5,
        )  # fmt: skip
        self.durable = self.durable_over(self.jetstream)

    def durable_over(self, jetstream: object) -> DurableConsumer:
        """The durable consumer, its questions asked through `jetstream`."""
        return DurableConsumer(cast(JetStreamContext, jetstream), self.context, self.settings, WorkerHealth())

    async def publish(self, *bodies: bytes, subject: str = SUBJECT) -> None:
        """Append messages to the stream."""
        for body in bodies:
            await self.jetstream.publish(subject, body)

    @asynccontextmanager
    async def consuming(self, ack_wait_seconds: float | None = None) -> AsyncIterator[None]:
        """A consumer for the length of the context; its end is that of a killed process, without farewells.

        `ack_wait_seconds`: what the consumer takes for NATS's setting, where that is not so.
        """
        puller = Puller(
            self.client,
            stream=STREAM,
            consumer=CONSUMER,
            messages_max=16,
            heartbeat_seconds=0.5,
            bind=self.durable.bind,
        )
        failed_events = FailedEvents(self.context, CONSUMER, tries_max=2, pause_seconds=0.05, pause_seconds_max=0.1)
        consumer = EventConsumer(
            puller,
            cast(WorkflowStarter, self.effects),
            failed_events,
            in_flight_max=IN_FLIGHT_MAX,
            ack_wait_seconds=ack_wait_seconds or self.settings.worker_ack_wait_seconds,
        )
        running = asyncio.create_task(consumer.run())
        try:
            yield
            assert not running.done(), running.exception()
        finally:
            await end_all({running})

    async def position(self) -> int:
        """The position in PostgreSQL after one more attempt to save it."""
        await self.durable.save_position()
        found = rows_of(self.url, "select version from consumer_positions where consumer = %s", CONSUMER)
        return int(found[0][0]) if found else 0

    async def unsettled(self) -> int:
        """Messages that are delivered and neither acknowledged nor ended."""
        return (await self.jetstream.consumer_info(STREAM, CONSUMER)).num_ack_pending or 0


Scenario = Callable[[Stage], Awaitable[None]]
Play = Callable[[Scenario], None]


def player(url: str, nats_url: str) -> Play:
    """Runs a scenario on a fresh stream and a database."""

    def run(scenario: Scenario) -> None:
        async def scene() -> None:
            client = await nats.connect(nats_url)
            context = make_context(url)
            try:
                await client.jetstream().add_stream(name=STREAM, subjects=["berth.events.>"])
                await scenario(Stage(url, client, context))
            finally:
                await client.close()
                await context.database.close()

        asyncio.run(scene())

    return run
