"""Blocking work in a thread, without ever leaving it behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


async def in_thread(work: Callable[[], Result], stop: threading.Event | None = None) -> Result:
    """What `work` returns or raises. When cancelled, sets `stop`, which long work checks, and delivers the
    cancellation only after the thread has ended, so that a cleanup that follows never races with it."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if stop is not None:
            stop.set()
        await asyncio.wait((running,))
        raise
