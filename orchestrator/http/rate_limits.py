"""Token buckets of each principal, one for each class of request. They are of this process alone."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from orchestrator.problems import RateLimited

BURST_SECONDS = 4
"""A full bucket holds the requests of so many seconds."""
BUCKETS_MAX = 100_000
"""Buckets kept; the one unused longest is dropped, and its principal has a full one again."""


class RequestClass(StrEnum):
    """What a rate is of. A stream is the opening of one."""

    WRITE = "write"
    READ = "read"
    STREAM = "stream"
    OPERATION_QUERY = "operation_query"


Rates = Mapping[RequestClass, float]
"""Requests per second."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class RateLimits:
    """Rates of every principal, and of those that have `own` ones. `clock` is monotonic, in seconds."""

    def __init__(
        self, rates: Rates, own: Mapping[UUID, Rates] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rates = rates
        self._own = own or {}
        self._clock = clock
        self._buckets: OrderedDict[tuple[UUID, RequestClass], _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, principal: UUID, of: RequestClass) -> None:
        """Count one request. Raises `RateLimited` if the principal's bucket of this class is empty."""
        rate = self._rate(principal, of)
        burst = max(1.0, rate * BURST_SECONDS)
        now = self._clock()
        key = (principal, of)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(burst, now)
            if len(self._buckets) > BUCKETS_MAX:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
            bucket.tokens = min(burst, bucket.tokens + (now - bucket.filled_at) * rate)
            bucket.filled_at = now
        if bucket.tokens < 1.0:
            raise RateLimited.of(
                of.value, quota=int(burst), window_seconds=burst / rate, wait_seconds=(1.0 - bucket.tokens) / rate
            )
        bucket.tokens -= 1.0

    def _rate(self, principal: UUID, of: RequestClass) -> float:
        own = self._own.get(principal)
        return self._rates[of] if own is None else own.get(of, self._rates[of])
