"""Windows of time: half-open, `[starts_at, ends_at)`, and which of them may be asked for. Pure; times are aware."""

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
        """How long it is; None: open-ended."""
        return None if self.ends_at is None else self.ends_at - self.starts_at


def judge_window(starts_at: datetime | None, ends_at: datetime | None, *, now: datetime, seconds_max: float) -> Window:
    """The window that these times ask for at `now`: absent or past beginnings mean now.

    Raises `WindowInvalid` for a window that is over, reversed, empty, too far away or too long.
    """
    starts = now if starts_at is None else max(starts_at, now)
    longest = timedelta(seconds=seconds_max)
    if ends_at is not None and ends_at <= now:
        raise WindowInvalid("the window is over")
    if ends_at is not None and starts_at is not None and ends_at <= starts_at:
        raise WindowInvalid("the window ends before it begins")
    if starts - now > longest:
        raise WindowInvalid("the window begins too far away", window_seconds_max=seconds_max)
    if ends_at is not None and ends_at - starts > longest:
        raise WindowInvalid("the window is too long; leave ends_at out for an open end", window_seconds_max=seconds_max)
    return Window(starts, ends_at)
