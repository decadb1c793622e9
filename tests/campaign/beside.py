"""Work that goes on beside something else, and is not forgotten when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from worker.supervision import end_all

CANCEL_AGAIN_SECONDS = 10.0
"""Longer than a watcher's thread works, which a second cancellation would leave behind."""


class WatcherEnded(Exception):
    """What was to go on until the end did not; the cause says why."""


@asynccontextmanager
async def beside(**works: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Each of the works runs, by its name, until the block is over and is cancelled then.

    One that ends before, by an exception or without, ends the block. Raises `WatcherEnded` for it, or what the block raised.
    """

    async def until_cancelled(name: str) -> None:
        try:
            await works[name]()
        except Exception as error:
            raise WatcherEnded(f"{name} failed: {type(error).__name__}: {error}") from error
        raise WatcherEnded(f"{name} ended, although the block still runs")

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(until_cancelled(name), name=name) for name in works]
            try:
                yield
            finally:
                await end_all({*tasks}, CANCEL_AGAIN_SECONDS)
    except BaseExceptionGroup as found:
        raise found.exceptions[0] from found.exceptions[0].__cause__


async def to_thread_whole(work: Callable[[], None]) -> None:
    """Run it in a thread; a cancellation waits until it is done, so that it never runs on beside later work."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await working
        raise
