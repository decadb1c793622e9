"""Looks up API keys in few queries over connections for nothing else: unknown keys keep no other request waiting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from berth.process.combined_calls import CombinedCalls
from orchestrator.database.transactions import Database
from orchestrator.tenants.principals import Principal

DIGESTS_MAX = 1_000
"""Most keys of one query."""

Find = Callable[[Database, Sequence[bytes]], Awaitable[dict[bytes, Principal]]]
_Lookup = tuple[Database, bytes]


class KeyLookups:
    """Keys that are asked for while a query runs are in the next one.

    One query at a time for ending verbs, and one for all other requests: a release does not wait for them (P13).
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._queries = {
            ending: CombinedCalls[_Lookup, Principal | None](self._principals_of, items_max=DIGESTS_MAX)
            for ending in (True, False)
        }

    async def principal_of(self, database: Database, digest: bytes) -> Principal | None:
        """The principal of a live key, by the key's SHA-256. Raises what the query raises."""
        return await self._queries[bool(database.ending_verb)].outcome((database, digest))

    async def _principals_of(self, lookups: Sequence[_Lookup]) -> list[Principal | None]:
        found = await self._find(lookups[0][0], list({digest for _, digest in lookups}))
        return [found.get(digest) for _, digest in lookups]
