"""Shutdown cancels a task again if its wait swallowed the first cancellation."""

from __future__ import annotations

import asyncio

from worker.supervision import end_all


def test_a_loop_that_swallows_a_cancellation_is_cancelled_again() -> None:
    async def main() -> int:
        swallowed = 0

        began = asyncio.Event()

        async def loop() -> None:
            nonlocal swallowed
            began.set()
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if swallowed:
                        raise
                    swallowed += 1

        task = asyncio.create_task(loop())
        await began.wait()
        await end_all({task}, cancel_again_seconds=0.01)
        assert task.cancelled()
        return swallowed

    assert asyncio.run(main()) == 1
