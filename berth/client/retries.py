"""When to send a request again, and what to say when giving up. Pure: no sockets and no sleeping here.

A write is always repeated with the same idempotency key, so repeating is safe; what needs care is the last word. Once
an attempt may have reached the server without an answer coming back, a later "cannot connect" no longer means
"not done": the outcome is unknown (DESIGN P12).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import httpx

from berth.client.errors import BerthError, OperationInProgress, OutcomeUnknown, Overloaded, Unavailable

NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
RETRIED = (OperationInProgress, OutcomeUnknown, Unavailable, Overloaded)
FIRST_PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 3.0


@dataclass
class Retries:
    """The story of one request's attempts, within `seconds_max` of retrying."""

    writes: bool
    address: str
    idempotency_key: str | None
    seconds_max: float
    attempts: int = field(default=0, init=False)
    uncertain: bool = field(default=False, init=False)

    def error_of(self, cause: httpx.TransportError) -> BerthError:
        """The named error for a connection that failed."""
        if self.writes and not isinstance(cause, NEVER_SENT):
            return OutcomeUnknown(
                f"the connection to {self.address} was lost before its answer came; the request may have been done",
                code="outcome_unknown",
                outcome="unknown",
            )
        what = str(cause) or type(cause).__name__
        return Unavailable(f"cannot reach the API at {self.address} ({what})", code="unreachable")

    def pause_seconds(self, error: BerthError, elapsed_seconds: float) -> float:
        """How long to wait before the next attempt; raises the last word when there is none.

        Exponential backoff with full jitter between half and the whole step; never less than the server's Retry-After.
        """
        if error.outcome in ("unknown", "in_progress"):
            self.uncertain = True
        step = min(PAUSE_SECONDS_MAX, FIRST_PAUSE_SECONDS * 2.0**self.attempts)
        pause = max(step * random.uniform(0.5, 1.0), error.retry_after_seconds or 0.0)
        self.attempts += 1
        if not isinstance(error, RETRIED) or elapsed_seconds + pause > self.seconds_max:
            raise self._last_word(error)
        return pause

    def _last_word(self, error: BerthError) -> BerthError:
        if self.idempotency_key is not None:
            error.extra.setdefault("idempotency_key", self.idempotency_key)
        if self.writes and self.uncertain and isinstance(error, Unavailable | Overloaded):
            return OutcomeUnknown(
                f"{error.detail}; an earlier attempt may have been done",
                code="outcome_unknown",
                status=error.status,
                outcome="unknown",
                extra=error.extra,
            )
        return error
