"""Limits of each principal in this process, applied once its credential or certificate is verified.

A principal is a tenant, an operator's key or subject, or a node. One beyond its bound is refused; the others notice nothing.
Requests that end something (release, cancel, confirm, a task's result) are never refused (P13): beyond their own bound, and
while the same object's previous request is served, they wait (orchestrator/http/waiting_requests.py). Repetitions without a key
share a transaction (orchestrator/edge/repetitions.py): they pass here, a bounded number at once, and the one that runs takes the
turn of all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final
from uuid import UUID

from berth.process.keyed_turns import KeyedTurns
from orchestrator.http.asgi import Scope, State
from orchestrator.http.metrics import LIMITED
from orchestrator.http.rate_limits import RateLimits, RequestClass
from orchestrator.http.services import ENDING_VERB, TAKE_TURN
from orchestrator.http.waiting_requests import PLACE, WaitingRequests
from orchestrator.problems import ConcurrencyLimited, Problem, RateLimited

ON_RESPONSE: Final = "on_response"
"""Member of a request's state: a list of callables that the edge calls when the response begins, or the request is over."""
LIMITED_PRINCIPAL: Final = "limited_principal"
"""Member of a refused request's state: the principal at its limit, for the log."""
KEY_HEADER: Final = b"idempotency-key"
STREAMS: Final = frozenset({"/v1/subscribe"})
OPERATIONS: Final = "/api/v1/operations/"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
REPETITIONS_MAX: Final = 64
"""Requests for one object that may share a transaction, at once. More wait before their bodies are read."""
REPEATING_SHARE: Final = 4
"""Such requests of a principal for all its objects, as a multiple of those that are served at once."""
REPEATABLE: Final = re.compile(r"/api/v1/(?:allocations/[^/]+/release|reservations/[^/]+/(?:confirm|cancel))")
"""What changes nothing when it is done again: both times the answer is the state."""
_ADMITTED: Final = "admitted"
_COUNTED: Final = "counted_in_flight"


def class_of(scope: Scope) -> RequestClass:
    """The class of a request that ends nothing."""
    path: str = scope["path"]
    if path in STREAMS:
        return RequestClass.STREAM
    if path.startswith(OPERATIONS):
        return RequestClass.OPERATION_QUERY
    return RequestClass.READ if scope["method"] in SAFE_METHODS else RequestClass.WRITE


class PrincipalLimits:
    """Rates and requests in flight by principal. `endings_max`: of those that end something, which have no rate.

    A principal has at most as many in flight as the process has places left, so that no few of them take all places.
    """

    def __init__(
        self, in_flight_max: int, endings_max: int, rates: RateLimits, waiting: WaitingRequests | None = None
    ) -> None:
        self.waiting = waiting or WaitingRequests()
        self._rates = rates
        self._in_flight_max = in_flight_max
        self._in_flight: Counter[UUID] = Counter()
        self._endings: KeyedTurns[tuple[UUID, str]] = KeyedTurns(endings_max)
        self._objects: KeyedTurns[tuple[UUID, str]] = KeyedTurns(1)
        self._repetitions: KeyedTurns[tuple[UUID, str]] = KeyedTurns(REPETITIONS_MAX)
        self._repeating: KeyedTurns[tuple[UUID, str]] = KeyedTurns(REPEATING_SHARE * endings_max)

    @property
    def principals(self) -> int:
        """How many principals have requests that count."""
        turns = (self._endings, self._objects, self._repetitions, self._repeating)
        return len(self._in_flight) + sum(len(each) for each in turns)

    async def admit(self, scope: Scope, principal: UUID) -> None:
        """Count a request of this principal until its response begins; once, however often this is called.

        Raises `RateLimited` and `ConcurrencyLimited`, but never for a request that ends something: that waits for its turn.
        """
        state = scope["state"]
        if state.get(_ADMITTED):
            return
        state[_ADMITTED] = True
        try:
            await self._admit(scope, principal)
        except Problem:
            state[LIMITED_PRINCIPAL] = str(principal)
            raise

    async def _admit(self, scope: Scope, principal: UUID) -> None:
        state = scope["state"]
        leaving: list[Callable[[], None]] = state[ON_RESPONSE]
        if verb := state.get(ENDING_VERB):
            path = scope["path"]
            turn = partial(self._wait_for_turn, state, principal, verb, path)
            if not REPEATABLE.fullmatch(path) or any(name == KEY_HEADER for name, _ in scope["headers"]):
                await turn()
                return
            await self._take(state, self._repetitions, (principal, path))
            await self._take(state, self._repeating, (principal, verb))
            state[TAKE_TURN] = turn
            return
        self.take_rate(principal, class_of(scope))
        own, place = self._in_flight[principal], state.get(PLACE)
        if own >= self._in_flight_max or (place is not None and not place.leaves_room(own)):
            LIMITED.labels("concurrency").inc()
            raise ConcurrencyLimited(
                f"{own} requests of this principal are in flight in this process, the most allowed now; retry later"
            )
        self._in_flight[principal] += 1
        leaving.append(partial(self._leave, principal))
        state[_COUNTED] = True

    @asynccontextmanager
    async def away(self, state: State, principal: UUID) -> AsyncIterator[None]:
        """Wait in the block, as `WaitingRequests.hold`: the request counts among those that wait, and not in flight."""
        if not state.get(_COUNTED):
            async with self.waiting.hold(state, principal):
                yield
            return
        self._in_flight[principal] -= 1
        try:
            async with self.waiting.hold(state, principal):
                yield
        finally:
            self._in_flight[principal] += 1

    def take_rate(self, principal: UUID, of: RequestClass) -> None:
        """Count one request against the principal's rate alone. Raises `RateLimited`."""
        try:
            self._rates.take(principal, of)
        except RateLimited:
            LIMITED.labels("rate").inc()
            raise

    async def _wait_for_turn(self, state: State, principal: UUID, verb: str, path: str) -> None:
        """A turn of the object, then one of the verb: confirms that wait for a lock delay no release."""
        await self._take(state, self._objects, (principal, path))
        await self._take(state, self._endings, (principal, verb))

    async def _take(self, state: State, turns: KeyedTurns[tuple[UUID, str]], key: tuple[UUID, str]) -> None:
        """Take a turn of a principal; a request that has to wait for it takes no place meanwhile."""
        if turns.is_free(key):
            await turns.take(key)
        else:
            async with self.waiting.hold(state, key[0]):
                await turns.take(key)
        state[ON_RESPONSE].append(partial(turns.give_back, key))

    def _leave(self, principal: UUID) -> None:
        self._in_flight[principal] -= 1
        if not self._in_flight[principal]:
            del self._in_flight[principal]
