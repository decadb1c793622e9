"""Shutdown cancels a task again if its wait swallowed the first cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from worker.consumers.consumer import EventConsumer
from worker.consumers.dead_letters import FailedEvents
from worker.consumers.pulling import Puller
from worker.supervision import StoppableGroup, end_all
from worker.workflows.starting import WorkflowStarter


class Swallowing:
    """A wait that swallows its first cancellation, as `asyncio.wait_for` does when it completes at that moment."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.swallowed = 0

    async def wait(self) -> None:
        """Wait for ever, or until the second cancellation."""
        self.began.set()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.swallowed:
                    raise
                self.swallowed += 1

    async def messages(self) -> AsyncIterator[None]:
        """Takes the place of a puller's: none arrives."""
        await self.wait()
        yield


def test_a_loop_that_swallows_a_cancellation_is_cancelled_again() -> None:
    async def main() -> int:
        loop = Swallowing()
        task = asyncio.create_task(loop.wait())
        await loop.began.wait()
        await end_all({task}, cancel_again_seconds=0.01)
        assert task.cancelled()
        return loop.swallowed

    assert asyncio.run(main()) == 1


def test_a_group_ends_although_one_of_its_tasks_swallows_a_cancellation() -> None:
    async def main() -> int:
        loop = Swallowing()

        async def group_that_fails() -> None:
            async with StoppableGroup(cancel_again_seconds=0.01) as group:
                group.create_task(loop.wait())
                await loop.began.wait()
                raise LookupError

        with pytest.raises(ExceptionGroup) as found:
            await group_that_fails()
        assert [type(error) for error in found.value.exceptions] == [LookupError]
        return loop.swallowed

    assert asyncio.run(main()) == 1


def test_a_consumer_ends_although_its_reading_swallows_a_cancellation() -> None:
    """Or a worker that is to stop would run until it is killed."""

    async def main() -> int:
        reading = Swallowing()
        consumer = EventConsumer(
            cast(Puller, reading),
            cast(WorkflowStarter, None),
            cast(FailedEvents, None),
            in_flight_max=1,
            ack_wait_seconds=60.0,
        )
        running = asyncio.create_task(consumer.run())
        await reading.began.wait()
        running.cancel()
        ended, _ = await asyncio.wait({running}, timeout=30.0)
        assert ended
        assert running.cancelled()
        return reading.swallowed

    assert asyncio.run(main()) == 1
