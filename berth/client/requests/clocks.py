"""Time as the client needs it: how long ago something was, and what time it is where the keys are kept.

This machine's wall clock may be wrong, and may jump while a program runs; no call of the client rests on it. What is
over is told by a clock that only goes forward, and what time it is by the `Date` of the server's own answers.
"""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

# Linux's monotonic clock stands still while the machine sleeps; a key grows older all the same.
_STEADY = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def steady_seconds() -> float:
    """Seconds since some moment: never goes back, and goes on while the machine sleeps where the system can tell."""
    return time.monotonic() if _STEADY is None else time.clock_gettime(_STEADY)


def wall_seconds() -> float:
    """Seconds since 1970 (UTC) by this machine, for what carries a time and comes by itself: a webhook's message."""
    return time.time()


class ServerClock:
    """The server's time as its answers tell it, carried on by the steady clock. Safe to use from several threads.

    Never ahead of the server: `Date` is cut to whole seconds and has travelled. Until the server has told its time once,
    this machine's wall clock stands in, read a single time.
    """

    def __init__(self) -> None:
        self._offset: float | None = None
        self._own_offset = wall_seconds() - steady_seconds()

    @property
    def known(self) -> bool:
        """Whether the server has told its time."""
        return self._offset is not None

    def learn(self, date: str | None) -> None:
        """Take over what an answer's `Date` says; what cannot be read changes nothing."""
        if date is None:
            return
        try:
            told = parsedate_to_datetime(date).timestamp()
        except (ValueError, OverflowError, OSError):
            return
        self._offset = told - steady_seconds()

    def now_seconds(self) -> float:
        """Seconds since 1970 (UTC) by the server's clock."""
        return steady_seconds() + (self._own_offset if self._offset is None else self._offset)
