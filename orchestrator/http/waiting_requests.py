"""Requests that wait for a turn of their principal or a version of the log: bounded by number, bytes and time, shared fairly.

They take no place among the requests in flight, and nothing more is read from their clients, so that one principal's waiting
requests cost the others nothing. Where the table is full, the principal with the most of it is refused first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import UUID

from orchestrator.http.asgi import State
from orchestrator.http.metrics import LIMITED, WAITING
from orchestrator.problems import Overloaded

PLACE: Final = "place"
"""Member of a request's state: its `Place`, which the edge sets."""
WAITING_MAX: Final = 8_000
"""Requests that wait, of all principals."""
PRINCIPAL_WAITING_MAX: Final = 4_000
"""Requests of a principal that wait: no client that releases what it has keeps so many open."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of bodies that have arrived before their requests may run; a principal has at most a quarter."""
PRINCIPAL_SHARE: Final = 4
TURN_SECONDS_MAX: Final = 60.0
"""Longest wait for a turn. Then the client is asked to come again, so that no wait is without an end (P9)."""


class Place(Protocol):
    """A request's place among those in flight."""

    def begin_wait(self) -> int:
        """Leave the place; return the bytes that the request holds."""

    def end_wait(self) -> None:
        """Take it again."""

    def require_room(self) -> None:
        """Raise `Overloaded` if there was none."""


@dataclass(eq=False, slots=True)
class _Waiter:
    """A request that waits. `end`: its deadline, which comes at once if it has to make room."""

    size: int
    end: asyncio.Timeout
    is_evicted: bool = False


@dataclass(eq=False, slots=True)
class _Waiters:
    """The waiting requests of one principal, the oldest first."""

    waiters: dict[_Waiter, None] = field(default_factory=dict)
    size: int = 0

    def add(self, waiter: _Waiter) -> None:
        self.waiters[waiter] = None
        self.size += waiter.size

    def remove(self, waiter: _Waiter) -> None:
        del self.waiters[waiter]
        self.size -= waiter.size


class WaitingRequests:
    """The waiting requests of a process. Holds an entry for each principal with one, and no others."""

    def __init__(
        self,
        waiting_max: int = WAITING_MAX,
        principal_max: int = PRINCIPAL_WAITING_MAX,
        bytes_max: int = WAITING_BYTES_MAX,
        seconds_max: float = TURN_SECONDS_MAX,
    ) -> None:
        self._waiting_max = waiting_max
        self._principal_max = principal_max
        self._bytes_max = bytes_max
        self._seconds_max = seconds_max
        self._by_principal: dict[UUID, _Waiters] = {}
        self._count = 0
        self._size = 0

    def __len__(self) -> int:
        return self._count

    @asynccontextmanager
    async def hold(self, state: State, principal: UUID) -> AsyncIterator[None]:
        """Wait in the block: the request of this state takes no place meanwhile.

        Raises `Overloaded` if the principal has as many waiting as it may, if others need the room, or after `seconds_max`; and
        for a request that finds no place afterwards, which none is that ends something.
        """
        place: Place | None = state.get(PLACE)
        size = 0 if place is None else place.begin_wait()
        try:
            deadline = asyncio.timeout(self._seconds_max)
            waiter = self._add(principal, size, deadline)
            try:
                async with deadline:
                    yield
            except TimeoutError:
                if not deadline.expired():
                    raise
                raise self._refusal("had to make room" if waiter.is_evicted else "waited as long as it may") from None
            finally:
                if not waiter.is_evicted:
                    self._remove(principal, waiter)
        finally:
            if place is not None:
                place.end_wait()
        if place is not None:
            place.require_room()

    def _add(self, principal: UUID, size: int, end: asyncio.Timeout) -> _Waiter:
        own = self._by_principal.get(principal, _Waiters())
        waiter = _Waiter(size, end)
        if len(own.waiters) >= self._principal_max or own.size + size > self._bytes_max // PRINCIPAL_SHARE:
            raise self._refusal("is one too many")
        while self._count >= self._waiting_max or self._size + size > self._bytes_max:
            self._evict_for(own, size)
        self._by_principal[principal] = own
        own.add(waiter)
        self._count += 1
        self._size += size
        WAITING.inc()
        return waiter

    def _evict_for(self, own: _Waiters, size: int) -> None:
        """Refuse the newest request of the principal with the most; raise `Overloaded` if that is the one that asks."""
        largest, most = max(self._by_principal.items(), key=lambda item: self._share(item[1]), default=(None, own))
        if largest is None or self._share(most) <= self._share(own, size):
            raise self._refusal("is one too many")
        newest = next(reversed(most.waiters))
        newest.is_evicted = True
        if not newest.end.expired():
            newest.end.reschedule(asyncio.get_running_loop().time())
        self._remove(largest, newest)

    def _share(self, waiters: _Waiters, more: int | None = None) -> float:
        """How much of the table a principal has, or would have with a request of so many bytes more."""
        count = len(waiters.waiters) + (more is not None)
        return max(count / self._waiting_max, (waiters.size + (more or 0)) / self._bytes_max)

    def _remove(self, principal: UUID, waiter: _Waiter) -> None:
        own = self._by_principal[principal]
        own.remove(waiter)
        if not own.waiters:
            del self._by_principal[principal]
        self._count -= 1
        self._size -= waiter.size
        WAITING.dec()

    def _refusal(self, why: str) -> Overloaded:
        LIMITED.labels("waiting").inc()
        return Overloaded(
            f"this request waits for earlier ones of its principal, and {why}; send fewer at once, or retry later"
        )
