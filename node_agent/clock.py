"""The server's time as the agent knows it.

Deadlines in tasks and certificates are the server's. The node's wall clock may be wrong by years and two hosts'
monotonic clocks cannot be compared, so the agent takes the server time of the last answer and adds what its own
monotonic clock has counted since. CLOCK_BOOTTIME, unlike CLOCK_MONOTONIC, also counts time asleep (clock_gettime(2)).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta


def boot_seconds() -> float:
    """Seconds since this machine booted, suspension included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ServerClock:
    """Estimates the server's clock; never ahead of it by more than the clocks' drift since the last answer."""

    def __init__(self, monotonic: Callable[[], float] = boot_seconds) -> None:
        self._monotonic = monotonic
        self._server_time: datetime | None = None
        self._observed_at = 0.0

    @property
    def known(self) -> bool:
        """Whether any answer has been seen."""
        return self._server_time is not None

    def observe(self, server_time: datetime) -> None:
        """Take the time stamped on an answer that has just arrived."""
        self._server_time = server_time
        self._observed_at = self._monotonic()

    def now(self) -> datetime:
        """The server's time. Raises LookupError before the first answer: nothing may be judged by a guess."""
        if self._server_time is None:
            raise LookupError("no answer of the server has been seen yet")
        return self._server_time + timedelta(seconds=self.seconds_since_contact())

    def seconds_since_contact(self) -> float:
        """Seconds since the last answer; infinite before the first."""
        if self._server_time is None:
            return float("inf")
        return self._monotonic() - self._observed_at
