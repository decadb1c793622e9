"""When to send a request again, and whether an error may be the last word. Pure: no sockets and no sleeping here.

A write is always repeated with the same idempotency key, so repeating is safe; what needs care is the last word. Once
an attempt may have reached the server without an answer coming back, a later "cannot connect" or "overloaded" no longer
means "not done": the outcome is open until an answer about the key itself comes (DESIGN P12).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import httpx

from berth.client.errors import (
    BerthError,
    OperationInProgress,
    OutcomeUnknown,
    Overloaded,
    RequestTimeout,
    Unavailable,
    UnreadableAnswer,
)

NEVER_SENT = (
    httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol,
)  # fmt: skip
RETRIED = (OperationInProgress, OutcomeUnknown, Unavailable, Overloaded, RequestTimeout)
FIRST_PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 3.0


@dataclass
class Retries:
    """The story of one request's attempts, within `seconds_max` of retrying. `open`: one of them may have been done."""

    writes: bool
    address: str
    seconds_max: float
    attempts: int = field(default=0, init=False)
    open: bool = field(default=False, init=False)

    def error_of(self, cause: httpx.RequestError) -> BerthError:
        """The named error for a connection that failed."""
        if self.writes and not isinstance(cause, NEVER_SENT):
            return OutcomeUnknown(
                f"the connection to {self.address} was lost before its answer came; the request may have been done",
                code="outcome_unknown",
                outcome="unknown",
            )
        what = str(cause) or type(cause).__name__
        return Unavailable(f"cannot reach the API at {self.address} ({what})", code="unreachable")

    def pause_seconds(self, error: BerthError, elapsed_seconds: float) -> float | None:
        """How long to wait before the next attempt; None when there is none.

        Exponential backoff with jitter between half and the whole step; never less than the server's Retry-After.
        """
        undecided = error.outcome in ("unknown", "in_progress") and not error.settles
        self.open = (self.open or (self.writes and undecided)) and not error.settles
        step = min(PAUSE_SECONDS_MAX, FIRST_PAUSE_SECONDS * 2.0 ** min(self.attempts, 16))
        pause = max(step * random.uniform(0.5, 1.0), error.retry_after_seconds or 0.0)
        self.attempts += 1
        again = isinstance(error, RETRIED) or (self.writes and undecided and not isinstance(error, UnreadableAnswer))
        return pause if again and elapsed_seconds + pause <= self.seconds_max else None
