"""The worker's position never passes an event whose effect is missing, and a dead letter is stored before its message ends."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import nats
import orjson
import psycopg
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import ConsumerInfo, StreamInfo
from temporalio.service import RPCError, RPCStatusCode

from berth.local.servers import LocalNats
from migrations.roles import Role
from orchestrator.database.transactions import connect_database
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
from worker.workflows.starting import WorkflowStarter

STREAM, CONSUMER = "BERTH_LOG", "berth-worker"
SUBJECT = "berth.events.operator.task.finished"
FOREIGN_SUBJECT = "berth.events.operator.test.happened"


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

    def __init__(self, url: str, client: Client, context: Context) -> None:
        self.url = url
        self.client = client
        self.jetstream = client.jetstream()
        self.context = context
        self.effects = Effects()
        self.settings = Settings(
            database_url=as_role(url, Role.WORKER), nats_url="nats://127.0.0.1:1", temporal_address="127.0.0.1:1",
            task_signing_key_file=Path("none"), worker_ack_wait_seconds=3.0, worker_pull_heartbeat_seconds=0.5,
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
    async def consuming(self) -> AsyncIterator[None]:
        """A consumer for the length of the context; its end is that of a killed process, without farewells."""
        puller = Puller(
            self.client,
            stream=STREAM,
            consumer=CONSUMER,
            messages_max=16,
            heartbeat_seconds=0.5,
            bind=self.durable.bind,
        )
        failed_events = FailedEvents(self.context, CONSUMER, tries_max=2, pause_seconds=0.05, pause_seconds_max=0.1)
        consumer = EventConsumer(puller, cast(WorkflowStarter, self.effects), failed_events, in_flight_max=4)
        running = asyncio.create_task(consumer.run())
        try:
            yield
            assert not running.done(), running.exception()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def position(self) -> int:
        """The position in PostgreSQL after one more attempt to save it."""
        await self.durable.save_position()
        found = rows_of(self.url, "select version from consumer_positions where consumer = %s", CONSUMER)
        return int(found[0][0]) if found else 0

    async def unsettled(self) -> int:
        """Messages that are delivered and neither acknowledged nor ended."""
        return (await self.jetstream.consumer_info(STREAM, CONSUMER)).num_ack_pending or 0


Play = Callable[[Callable[[Stage], Awaitable[None]]], None]


@pytest.fixture
def play(database_url: str, own_nats: LocalNats) -> Play:
    """Runs a scenario on a fresh stream and database."""

    def run(scenario: Callable[[Stage], Awaitable[None]]) -> None:
        async def scene() -> None:
            client = await nats.connect(own_nats.url)
            context = make_context(database_url)
            try:
                await client.jetstream().add_stream(name=STREAM, subjects=["berth.events.>"])
                await scenario(Stage(database_url, client, context))
            finally:
                await client.close()
                await context.database.close()

        asyncio.run(scene())

    return run


@pytest.mark.parametrize("lost", [False, True], ids=["consumer kept", "consumer lost"])
def test_an_event_without_its_effect_comes_again_after_a_restart(play: Play, lost: bool) -> None:
    """Delivered and not acknowledged when the worker dies; the events around it are done."""

    async def scenario(stage: Stage) -> None:
        stage.effects.blocked.add("second")
        async with stage.consuming():
            await stage.publish(finished_event("first"), finished_event("second"), finished_event("third"))
            await async_wait_for(lambda: len(stage.effects.done) == 2 and "second" in stage.effects.tried, "the others")
            await async_wait_for(lambda: _unsettled_is(stage, 1), "one unsettled message")
            assert await stage.position() == 1, "below the event that has no effect yet"
        assert sorted(stage.effects.done) == ["first", "third"]
        assert await stage.position() == 1
        if lost:
            await stage.jetstream.delete_consumer(STREAM, CONSUMER)
        stage.effects.blocked.clear()
        async with stage.consuming():
            await async_wait_for(lambda: "second" in stage.effects.done, "the second")
            await async_wait_for(lambda: _unsettled_is(stage, 0), "no unsettled message")
            await async_wait_for(lambda: _position_is(stage, 3), "position 3")
        assert stage.effects.done.count("first") == 1, "what the position covers does not come again"

    play(scenario)


async def _unsettled_is(stage: Stage, number: int) -> bool:
    return await stage.unsettled() == number


async def _position_is(stage: Stage, version: int) -> bool:
    return await stage.position() == version


def test_the_position_waits_for_events_that_no_worker_has_pulled(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        assert await stage.durable.bind()
        await stage.publish(finished_event("first"), finished_event("second"))
        assert await stage.position() == 0, "nothing is delivered, so nothing is unacknowledged"
        async with stage.consuming():
            await async_wait_for(lambda: _position_is(stage, 2), "position 2")
        assert sorted(stage.effects.done) == ["first", "second"]

    play(scenario)


class InterruptedQuestions:
    """A JetStream context; an event arrives between the first question about the stream or the consumer and the second."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._asked = 0

    async def stream_info(self, stream: str) -> StreamInfo:
        info = await self._stage.jetstream.stream_info(stream)
        await self._interrupt()
        return info

    async def consumer_info(self, stream: str, consumer: str) -> ConsumerInfo:
        info: ConsumerInfo = await self._stage.jetstream.consumer_info(stream, consumer)
        await self._interrupt()
        return info

    async def _interrupt(self) -> None:
        self._asked += 1
        if self._asked == 1:
            await self._stage.publish(finished_event("late"))


def test_an_event_that_arrives_while_the_position_is_read_is_not_skipped(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.consuming():
            await stage.publish(finished_event("first"))
            await stage.publish(b"{}", subject=FOREIGN_SUBJECT)
            await async_wait_for(lambda: _position_is(stage, 2), "position 2")
        await stage.durable_over(InterruptedQuestions(stage)).save_position()
        assert rows_of(stage.url, "select version from consumer_positions where consumer = %s", CONSUMER) == [(2,)]
        async with stage.consuming():
            await async_wait_for(lambda: "late" in stage.effects.done, "the late one")

    play(scenario)


@pytest.mark.parametrize("reason", ["unreadable", "refused"])
def test_a_dead_letter_that_cannot_be_stored_keeps_its_message(play: Play, database_url: str, reason: str) -> None:
    """The burial fails for as long as another session locks the table; the message comes again until it is stored."""

    async def scenario(stage: Stage) -> None:
        impatient = connect_database(
            database_url, pool_size=4, reserve_size=1, lock_timeout_seconds=0.1, transaction_timeout_seconds=5,
            application="impatient",
        )  # fmt: skip
        stage.context = Context(impatient, stage.context.limits)
        stage.effects.refused.add("refused")
        try:
            async with await psycopg.AsyncConnection.connect(database_url) as rival:
                await rival.execute("lock table dead_letters in exclusive mode")
                async with stage.consuming():
                    await stage.publish(b"not json" if reason == "unreadable" else finished_event("refused"))
                    await stage.publish(finished_event("behind"))
                    await async_wait_for(lambda: "behind" in stage.effects.done, "the one behind")
                    await async_wait_for(lambda: _redelivered(stage, 4), "four redeliveries")
                    assert await stage.unsettled() == 1
                    assert await stage.position() == 0
                    await rival.rollback()
                    await async_wait_for(
                        lambda: bool(rows_of(database_url, "select from dead_letters")), "the dead letter"
                    )
                    await async_wait_for(lambda: _unsettled_is(stage, 0), "no unsettled message")
                    await async_wait_for(lambda: _position_is(stage, 2), "position 2")
            letters = rows_of(database_url, "select version, reason, tries, state from dead_letters")
            assert letters == [(1, reason, 1 if reason == "unreadable" else 2, "dead")]
        finally:
            await impatient.close()

    play(scenario)


async def _redelivered(stage: Stage, times: int) -> bool:
    info = await stage.jetstream.consumer_info(STREAM, CONSUMER)
    return info.delivered is not None and info.delivered.consumer_seq > 2 + times
