"""The server's time as the agent knows it.

Deadlines in tasks and certificates are the server's. The node's wall clock may be wrong by years and two hosts'
monotonic clocks cannot be compared, so the agent takes the server time of the last answer and adds what its own
monotonic clock has counted since. CLOCK_BOOTTIME, unlike CLOCK_MONOTONIC, also counts time asleep (clock_gettime(2)).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

DIRECT_SECONDS_MAX = 1.0
"""An answer that took no longer is taken for one that was stamped just now."""


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

    def observe(self, server_time: datetime, asked_seconds_ago: float = 0.0) -> None:
        """Take the time stamped on an answer that has just arrived, whose question was asked so long ago.

        An answer that was held, or lay about while this process stood still, is as old as its question may be: its time
        then only moves the estimate forward, never back, or what has expired would seem to have time left.
        """
        if self._server_time is not None and asked_seconds_ago > DIRECT_SECONDS_MAX:
            server_time = max(server_time, self.now())
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
