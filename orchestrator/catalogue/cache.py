"""Keeps the catalogue in memory for a moment. Placement verifies row versions, so a stale copy can only cost a retry."""

from __future__ import annotations

import asyncio
import time

from orchestrator.catalogue.inventory_store import read_catalogue
from orchestrator.database.response_versions import AsOf, as_of, note_version
from orchestrator.database.transactions import Database
from orchestrator.placement.inventory import Catalogue

REFUSAL_AGE_SECONDS_MAX = 0.05


class CatalogueCache:
    """One process's copy of what is offered."""

    def __init__(self, database: Database, cache_seconds: float) -> None:
        self._database = database
        self._cache_seconds = cache_seconds
        self._read_at = float("-inf")
        self._catalogue: Catalogue | None = None
        self._version = 0
        self._reading = asyncio.Lock()

    async def current(self) -> Catalogue:
        """At most `cache_seconds` old."""
        return await self._not_older_than(self._cache_seconds)

    async def before_refusing(self) -> Catalogue:
        """Nearly fresh: nobody is refused because of what an operator changed a moment ago."""
        return await self._not_older_than(REFUSAL_AGE_SECONDS_MAX)

    def forget(self) -> None:
        """Read again at the next use: called by the process that changes the catalogue."""
        self._read_at = float("-inf")

    async def _not_older_than(self, age_seconds: float) -> Catalogue:
        if not self._is_good(age_seconds):
            async with self._reading:
                if not self._is_good(age_seconds):
                    await self._read()
        assert self._catalogue is not None
        note_version(self._version)
        return self._catalogue

    def _is_good(self, age_seconds: float) -> bool:
        """Whether the copy is young enough, and as new as the answer has to be that it serves."""
        asked = as_of.get()
        new_enough = asked is None or self._version >= asked.at_least
        return self._catalogue is not None and new_enough and time.monotonic() - self._read_at <= age_seconds

    async def _read(self) -> None:
        began = time.monotonic()
        own = AsOf()
        before = as_of.set(own)
        try:
            async with self._database.reading() as reading:
                self._catalogue = await read_catalogue(reading)
        finally:
            as_of.reset(before)
        assert own.version is not None
        self._version = own.version
        self._read_at = began
