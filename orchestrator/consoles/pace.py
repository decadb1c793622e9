"""A rate of bytes, kept by waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Pace:
    """Lets `bytes_per_second` pass, in bursts of one second's worth. `clock` returns monotonic seconds."""

    def __init__(self, bytes_per_second: int, clock: Callable[[], float]) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._free_at = clock() - 1.0

    def debt_seconds(self, count: int) -> float:
        """Take `count` bytes; how long the caller must wait before it passes them on."""
        now = self._clock()
        self._free_at = max(self._free_at, now - 1.0) + count / self._rate
        return max(0.0, self._free_at - now)

    async def take(self, count: int) -> None:
        """Return when `count` bytes may pass."""
        if (pause := self.debt_seconds(count)) > 0:
            await asyncio.sleep(pause)
