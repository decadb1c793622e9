"""The reserve: the few connections that only ending verbs of owners may take, and each principal's share of them (P13)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from berth.process.keyed_turns import KeyedTurns
from orchestrator.problems import Overloaded

POOL_TIMEOUT_SECONDS = 10.0
TOO_MANY = "the connection pool is exhausted; retry later or use another replica"
NOT_OWNED = (
    "the connection pool is exhausted, and what is kept for releases, cancels and confirms serves objects of the caller alone;"
    " retry later or use another replica"
)
PRINCIPAL_SHARE = 3
"""A principal may use one in so many connections of a verb's share, so release, cancel and confirm leave one to others."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """A principal with a right to the reserve, because it owns what it ends; None: the platform, or several principals."""

    principal: UUID | None = None


FindClaimant = Callable[[], Awaitable[Claimant | None]]
"""The claimant of a request; None: what it names is not its principal's. Raises `DatabaseUnavailable`."""


async def platform() -> Claimant:
    """The claimant where no principal asks, as for reports of nodes."""
    return Claimant()


@dataclass(frozen=True, slots=True)
class Ending:
    """What a request ends (release, cancel, confirm ...), empty if nothing; `claimant` is asked once the reserve is needed."""

    verb: str = ""
    claimant: FindClaimant = platform


class Reserve:
    """At most `size` connections. No verb takes the last of several, and no principal more than its share of a verb's.

    So a flood of confirms leaves a connection for a release, which needs a reserve of two, and from four connections on one is
    left beside everything that one principal ends. Callers wait in order of arrival, a principal with one request in each share.
    """

    def __init__(self, engine: AsyncEngine, size: int) -> None:
        self._engine = engine
        of_a_verb = max(1, size - 1)
        self._verbs: KeyedTurns[str] = KeyedTurns(of_a_verb)
        self._principals: KeyedTurns[tuple[UUID, str]] = KeyedTurns(max(1, of_a_verb // PRINCIPAL_SHARE))

    @asynccontextmanager
    async def connection(self, ending: Ending) -> AsyncIterator[AsyncConnection]:
        """A connection. Raises `Overloaded` if the claimant owns nothing of what it names, or if none is free in time."""
        claimant = await ending.claimant()
        if claimant is None:
            raise Overloaded(NOT_OWNED)
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(POOL_TIMEOUT_SECONDS):
                    await self._take_share(held, claimant.principal, ending.verb)
            except TimeoutError:
                raise Overloaded(TOO_MANY) from None
            yield await held.enter_async_context(self._engine.connect())

    async def _take_share(self, held: AsyncExitStack, principal: UUID | None, verb: str) -> None:
        if principal is not None:
            await self._principals.take((principal, verb))
            held.callback(self._principals.give_back, (principal, verb))
        await self._verbs.take(verb)
        held.callback(self._verbs.give_back, verb)

    async def close(self) -> None:
        """Close every connection."""
        await self._engine.dispose()
