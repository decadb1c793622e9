"""Whether an event loop turns, as another thread can tell: a callback is scheduled and its wait is measured."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable


class LoopPulse:
    """Measures for how long an event loop has not run a callback. Never blocks; may be called from any thread.

    At most one callback waits at a time, so frequent questions are no load. A loop that is busy for less than the bound of its
    caller is not taken for a frozen one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = loop
        self._clock = clock
        self._lock = threading.Lock()
        self._scheduled_at: float | None = None

    def silent_seconds(self) -> float:
        """For how long the last scheduled callback has waited; 0 if it has run, and a new one is scheduled.

        Infinite if the loop is closed.
        """
        with self._lock:
            if self._scheduled_at is not None:
                return self._clock() - self._scheduled_at
            try:
                self._loop.call_soon_threadsafe(self._run)
            except RuntimeError:  # the loop is closed
                return float("inf")
            self._scheduled_at = self._clock()
            return 0.0

    def _run(self) -> None:
        with self._lock:
            self._scheduled_at = None
