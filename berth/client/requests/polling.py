"""Asks for an object until it is in the state that was waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from berth.client.models import Allocation
from berth.client.requests.waiting import Waiting
from berth.client.reservation_models import Reservation

Found = TypeVar("Found", Allocation, Reservation)


async def poll(
    ask: Callable[[], Awaitable[Found]], waiting: Waiting, progress: Callable[[Found], None] | None
) -> Found:
    """Return the first answer of `ask` that ends `waiting`; `progress` sees every answer. Raises what `waiting` raises."""
    while True:
        found = await ask()
        if progress is not None:
            progress(found)
        pause = waiting.pause_seconds(found)
        if pause is None:
            return found
        await asyncio.sleep(pause)
