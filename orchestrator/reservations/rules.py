"""Windows of time, half-open `[starts_at, ends_at)`, and their bounds. Pure; times are timezone-aware."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from orchestrator.reservations.refusals import WindowInvalid


@dataclass(frozen=True, slots=True)
class Window:
    """From `starts_at` until before `ends_at`; None: open-ended."""

    starts_at: datetime
    ends_at: datetime | None

    @property
    def length(self) -> timedelta | None:
        """Its length; None: open-ended."""
        return None if self.ends_at is None else self.ends_at - self.starts_at


def judge_window(starts_at: datetime | None, ends_at: datetime | None, *, now: datetime, seconds_max: float) -> Window:
    """The window of a request at `now`; an absent or past `starts_at` means now.

    Raises `WindowInvalid` for a window that is past, reversed, empty, too far in the future or too long.
    """
    starts = now if starts_at is None else max(starts_at, now)
    longest = timedelta(seconds=seconds_max)
    if ends_at is not None and ends_at <= now:
        raise WindowInvalid("ends_at is in the past; send a later time")
    if ends_at is not None and starts_at is not None and ends_at <= starts_at:
        raise WindowInvalid("ends_at is not after starts_at; send a later ends_at")
    if starts - now > longest:
        raise WindowInvalid(
            f"starts_at is more than {seconds_max:,.0f} s from now; send an earlier time",
            window_seconds_max=seconds_max,
        )
    if ends_at is not None and ends_at - starts > longest:
        raise WindowInvalid(
            f"the window is longer than {seconds_max:,.0f} s; send an earlier ends_at, or none for an open end",
            window_seconds_max=seconds_max,
        )
    return Window(starts, ends_at)
