"""Looks up API keys in few queries, so that a flood of unknown keys takes one connection and not all of them."""

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

    One query at a time for each ending verb, and one for all other requests: ending verbs have reserved connections and wait
    for no other request (P13).
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._next: dict[str, _Query] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def principal_of(self, database: Database, digest: bytes) -> Principal | None:
        """The principal of a live key, by the key's SHA-256. Raises what the query raises."""
        verb = database.ending_verb
        query = self._next.get(verb)
        if query is None or len(query.digests) >= DIGESTS_MAX:
            query = self._next[verb] = _Query()
        query.digests.add(digest)
        if query.found is None:
            query.found = asyncio.create_task(self._run(database, verb, query))
        return (await asyncio.shield(query.found)).get(digest)

    async def _run(self, database: Database, verb: str, query: _Query) -> dict[bytes, Principal]:
        async with self._turns[verb]:
            if self._next.get(verb) is query:
                del self._next[verb]
            return await self._find(database, list(query.digests))
