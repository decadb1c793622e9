"""Limits of each principal in this process, applied once its credential or certificate is verified.

A principal is a tenant, an operator's key or subject, or a node. One beyond its bound is refused; the others notice nothing.
Requests that end something (release, cancel, confirm, a task's result) are never refused (P13): beyond their own bound, and
while the same object's previous request is served, they wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any, Final
from uuid import UUID

from orchestrator.http.keyed_turns import KeyedTurns
from orchestrator.http.metrics import LIMITED
from orchestrator.http.services import ENDING_VERB
from orchestrator.problems import ConcurrencyLimited

ON_RESPONSE: Final = "on_response"
"""Member of a request's state: a list of callables that the edge calls when the response begins, or the request is over."""
_ADMITTED: Final = "admitted"


class PrincipalLimits:
    """Requests in flight by principal. `endings_max`: of those that end something."""

    def __init__(self, in_flight_max: int, endings_max: int) -> None:
        self._in_flight_max = in_flight_max
        self._in_flight: Counter[UUID] = Counter()
        self._endings: KeyedTurns[UUID] = KeyedTurns(endings_max)
        self._objects: KeyedTurns[tuple[UUID, str]] = KeyedTurns(1)

    @property
    def principals(self) -> int:
        """How many principals have requests that count."""
        return len(self._in_flight) + len(self._endings) + len(self._objects)

    async def admit(self, scope: MutableMapping[str, Any], principal: UUID) -> None:
        """Count a request of this principal until its response begins; once, however often this is called.

        Raises `ConcurrencyLimited`, but never for a request that ends something: that waits for its turn.
        """
        state = scope["state"]
        if state.get(_ADMITTED):
            return
        state[_ADMITTED] = True
        leaving: list[Callable[[], None]] = state[ON_RESPONSE]
        if state.get(ENDING_VERB):
            await self._wait_for_turn(leaving, principal, scope["path"])
            return
        if self._in_flight[principal] >= self._in_flight_max:
            LIMITED.labels("concurrency").inc()
            raise ConcurrencyLimited(
                f"{self._in_flight_max} requests of this principal are in flight in this process, the most allowed; retry later"
            )
        self._in_flight[principal] += 1
        leaving.append(partial(self._leave, principal))

    async def _wait_for_turn(self, leaving: list[Callable[[], None]], principal: UUID, path: str) -> None:
        await self._objects.take((principal, path))
        leaving.append(partial(self._objects.give_back, (principal, path)))
        await self._endings.take(principal)
        leaving.append(partial(self._endings.give_back, principal))

    def _leave(self, principal: UUID) -> None:
        self._in_flight[principal] -= 1
        if not self._in_flight[principal]:
            del self._in_flight[principal]
