"""The worker's position never passes an event whose effect is missing, and a dead letter is stored before its message ends."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest
from nats.js.api import ConsumerInfo, StreamInfo

from berth.local.servers import LocalNats
from orchestrator.database.transactions import connect_database
from orchestrator.operations.execution import Context
from tests.allocations.driving import rows_of
from tests.support.waiting import async_wait_for
from tests.worker.consuming import CONSUMER, FOREIGN_SUBJECT, STREAM, Play, Stage, finished_event, player
from worker.consumers.durable import UNACKNOWLEDGED_MAX
from worker.consumers.events import FILTER_SUBJECTS


@pytest.fixture
def play(database_url: str, own_nats: LocalNats) -> Play:
    """Runs a scenario on a fresh stream and database."""
    return player(database_url, own_nats.url)


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


def test_a_consumer_of_an_older_version_gets_the_bound_and_the_events_of_this_one(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        assert await stage.durable.bind()
        made: ConsumerInfo = await stage.jetstream.consumer_info(STREAM, CONSUMER)
        earlier = replace(
            made.config, max_ack_pending=2_000, filter_subjects=[*FILTER_SUBJECTS[:-1], "of.a.newer.version"]
        )
        await stage.jetstream.add_consumer(STREAM, earlier)
        await stage.publish(finished_event("first"))
        assert await stage.durable.bind()
        found: ConsumerInfo = await stage.jetstream.consumer_info(STREAM, CONSUMER)
        assert (found.config.max_ack_pending, found.num_pending) == (UNACKNOWLEDGED_MAX, 1), "and keeps its place"
        assert sorted(found.config.filter_subjects or ()) == sorted([*FILTER_SUBJECTS, "of.a.newer.version"])

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
