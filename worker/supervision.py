"""Runs the loops of a process until it is stopped or one of them ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from types import TracebackType
from typing import Any, TypeVar

from worker.problems import CannotRun

CANCEL_AGAIN_SECONDS = 1.0

T = TypeVar("T")


class StoppableGroup(asyncio.TaskGroup):
    """A task group that cancels its tasks again until all have ended (see `end_all`).

    asyncio's group cancels each task once, also when it is cancelled again itself: a task that swallowed that keeps
    the group waiting for ever.
    """

    def __init__(self, cancel_again_seconds: float = CANCEL_AGAIN_SECONDS) -> None:
        super().__init__()
        self._cancel_again_seconds = cancel_again_seconds
        self._running: set[asyncio.Task[Any]] = set()

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """As asyncio's."""
        task = super().create_task(coro, name=name, context=context)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """As asyncio's; after an exception, the tasks that do not end are cancelled again and again."""
        ending = asyncio.create_task(self._end_the_rest()) if error is not None else None
        try:
            await super().__aexit__(kind, error, traceback)
        finally:
            if ending is not None:
                ending.cancel()

    async def _end_the_rest(self) -> None:
        await asyncio.sleep(self._cancel_again_seconds)
        await end_all({*self._running}, self._cancel_again_seconds)


async def supervise(loops: set[asyncio.Task[None]], stop: asyncio.Event) -> None:
    """Return when `stop` is set and every loop has ended. Raises `CannotRun` when a loop ends before."""
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait({*loops, stopping}, return_when=asyncio.FIRST_COMPLETED)
        _require_alive(loops)
    finally:
        await end_all({*loops, stopping})


async def end_all(tasks: set[asyncio.Task[Any]], cancel_again_seconds: float = CANCEL_AGAIN_SECONDS) -> None:
    """Cancel tasks until all have ended: a wait that completes at that moment swallows the cancellation (cpython 86296)."""
    while tasks:
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=cancel_again_seconds)


def _require_alive(loops: set[asyncio.Task[None]]) -> None:
    """Raise `CannotRun` if a loop has ended: the process must not look alive without it."""
    for task in loops:
        if task.done():
            error = task.exception()
            raise CannotRun(f"the loop {task.get_name()} ended: {type(error).__name__}: {error}") from error
