"""The lease of the site as this process knows it: it ends by this machine's own clock, never later than the server's."""

from __future__ import annotations

from collections.abc import Callable

from node_agent.clock import boot_seconds


class LeaseEnded(Exception):
    """This process may no longer act for the site: nothing more is sent to a BMC."""


class Lease:
    """What was granted last. The grant counts from before it was asked for, so it ends here first (CLOCK_BOOTTIME)."""

    def __init__(self, monotonic: Callable[[], float] = boot_seconds) -> None:
        self._monotonic = monotonic
        self._ends_at = float("-inf")
        self.fence = 0

    def grant(self, fence: int, seconds: float, asked_at: float) -> None:
        """The server granted `seconds` to a request that was sent at `asked_at`, by this clock."""
        self.fence = fence
        self._ends_at = asked_at + seconds

    def drop(self) -> None:
        """The server says that another process holds the lease, or it was given up."""
        self._ends_at = float("-inf")

    def seconds_left(self) -> float:
        """Seconds until it ends; negative after its end."""
        return self._ends_at - self._monotonic()

    def require(self, fence: int) -> None:
        """Raise `LeaseEnded` unless the lease of this fence is held now."""
        if self.fence != fence or self.seconds_left() <= 0:
            raise LeaseEnded(f"the lease of fence {fence} has ended")
