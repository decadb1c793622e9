"""Looks up API keys in few queries over connections for nothing else: unknown keys keep no other request waiting."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from orchestrator.database.transactions import Database
from orchestrator.tenants.principals import Principal

DIGESTS_MAX = 1_000
"""Most keys of one query."""

Find = Callable[[Database, Sequence[bytes]], Awaitable[dict[bytes, Principal]]]


@dataclass(slots=True, eq=False)
class _Query:
    """Keys that are looked up together: more may be added until the query runs."""

    digests: set[bytes] = field(default_factory=set)
    found: asyncio.Task[dict[bytes, Principal]] | None = None


class KeyLookups:
    """Keys that are asked for while a query runs are in the next one.

    One query at a time for ending verbs, and one for all other requests: a release does not wait for them (P13).
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._next: dict[bool, _Query] = {}
        self._turns: defaultdict[bool, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def principal_of(self, database: Database, digest: bytes) -> Principal | None:
        """The principal of a live key, by the key's SHA-256. Raises what the query raises."""
        ending = bool(database.ending_verb)
        query = self._next.get(ending)
        if query is None or len(query.digests) >= DIGESTS_MAX:
            query = self._next[ending] = _Query()
        query.digests.add(digest)
        if query.found is None:
            query.found = asyncio.create_task(self._run(database, ending, query))
        return (await asyncio.shield(query.found)).get(digest)

    async def _run(self, database: Database, ending: bool, query: _Query) -> dict[bytes, Principal]:
        async with self._turns[ending]:
            if self._next.get(ending) is query:
                del self._next[ending]
            return await self._find(database, list(query.digests))
