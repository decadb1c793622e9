"""The client's two clocks: elapsed time, and the server's time.

This machine's wall clock may be wrong, and may jump while a program runs; no call of the client depends on it.
Elapsed time is measured by a monotonic clock; the time of day is taken from the `Date` header of the server's responses.
"""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

# Linux's monotonic clock stops while the machine sleeps, but a key keeps ageing.
_STEADY = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def steady_seconds() -> float:
    """Monotonic seconds that include the time in which the machine slept, where the system provides such a clock."""
    return time.monotonic() if _STEADY is None else time.clock_gettime(_STEADY)


def wall_seconds() -> float:
    """Seconds since 1970 (UTC) by this machine, for what carries a time and comes by itself: a webhook's message."""
    return time.time()


class ServerClock:
    """The server's time from its `Date` headers, extrapolated by the steady clock. Thread-safe.

    Never ahead of the server: `Date` is cut to whole seconds and has travelled. Until the first `Date`, this
    machine's wall clock, read once, is used.
    """

    def __init__(self) -> None:
        self._offset: float | None = None
        self._own_offset = wall_seconds() - steady_seconds()

    @property
    def known(self) -> bool:
        """Whether the server's time is known."""
        return self._offset is not None

    def learn(self, date: str | None) -> None:
        """Take the time from a `Date` header; an unreadable one changes nothing."""
        if date is None:
            return
        try:
            server_time = parsedate_to_datetime(date).timestamp()
        except (ValueError, OverflowError, OSError):
            return
        self._offset = server_time - steady_seconds()

    def now_seconds(self) -> float:
        """Seconds since 1970 (UTC) by the server's clock."""
        return steady_seconds() + (self._own_offset if self._offset is None else self._offset)
