"""Waiting for a condition, and the pace of a load: no other file of the tests polls or sleeps."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from inspect import isawaitable
from typing import TypeVar

WAIT_SECONDS_MAX = 90.0
PACE_SECONDS = 0.02
"""Between two evaluations of a condition."""
LONG_SECONDS, LONG_PACE_SECONDS = 300.0, 1.0
"""Of what may take longer, as the boot of an emulated machine, which has the processors meanwhile."""

T = TypeVar("T")


def wait_for(holds: Callable[[], object], what: str, seconds_max: float = WAIT_SECONDS_MAX) -> None:
    """Return when `holds`; fail naming `what` after `seconds_max`."""
    deadline = time.monotonic() + seconds_max
    pace = LONG_PACE_SECONDS if seconds_max > LONG_SECONDS else PACE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited {seconds_max} s for {what}"
        threading.Event().wait(pace)


async def async_wait_for(holds: Callable[[], object], what: str, seconds_max: float = WAIT_SECONDS_MAX) -> None:
    """`wait_for` that lets other tasks run; `holds` may be asynchronous."""

    async def found() -> bool:
        value = holds()
        return bool(await value if isawaitable(value) else value)

    assert await read_until(found, bool, seconds_max), f"waited {seconds_max} s for {what}"


async def read_until(read: Callable[[], Awaitable[T]], enough: Callable[[T], bool], seconds_max: float) -> T:
    """The first value of `read` that is `enough`, or the one that it has after `seconds_max`."""
    deadline = time.monotonic() + seconds_max
    while not enough(value := await read()) and time.monotonic() < deadline:
        await pause(PACE_SECONDS)
    return value


async def wait_past(instant: datetime) -> None:
    """Return when this machine's clock is past the instant."""
    while (left := (instant - datetime.now(instant.tzinfo)).total_seconds()) >= 0:
        await pause(left)


async def pause(seconds: float, stopping: asyncio.Event | None = None) -> None:
    """The pace of a load, not a wait for an effect: return after so many seconds, or when `stopping` is set."""
    with suppress(TimeoutError):
        await asyncio.wait_for((stopping or asyncio.Event()).wait(), max(0.0, seconds))


async def let_others_run(turns: int = 1) -> None:
    """Let every task that can run go on, so many times."""
    for _ in range(turns):
        await asyncio.sleep(0)
