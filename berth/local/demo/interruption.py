"""Running a coroutine so that a signal ends it in order: it is cancelled, and only then does the caller hear of it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_interruptibly(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end and answer the result; raises KeyboardInterrupt after a signal has cancelled it.

    Raised inside a running loop, KeyboardInterrupt would tear it down in the middle of whatever it did.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    interrupted = False

    async def cancellable() -> Result | None:
        nonlocal interrupted
        task = asyncio.ensure_future(work)

        def cancel() -> None:
            nonlocal interrupted
            interrupted = True
            task.cancel()

        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, cancel)
        try:
            return await task
        except asyncio.CancelledError:
            return None

    try:
        result = asyncio.run(cancellable())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if interrupted or result is None:
        raise KeyboardInterrupt
    return result
