"""Runs the loops of a process until it is stopped or one of them ends."""

from __future__ import annotations

import asyncio
from typing import Any

from worker.problems import CannotRun

CANCEL_AGAIN_SECONDS = 1.0


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
