"""Keeps the catalogue in memory for a moment. Placement verifies row versions, so a stale copy can only cost a retry."""

from __future__ import annotations

import asyncio
import time

from orchestrator.catalogue.inventory_store import read_catalogue
from orchestrator.database.response_versions import ResponseVersion
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

    async def before_refusing(self, response_version: ResponseVersion | None = None) -> Catalogue:
        """At most 50 ms old, so that an operator's change of a moment ago is not the reason of a refusal.

        `response_version`: where the version of the copy is noted, which is at least the one the client asked for.
        """
        return await self._not_older_than(REFUSAL_AGE_SECONDS_MAX, response_version)

    def forget(self) -> None:
        """Read again at the next use: called by the process that changes the catalogue."""
        self._read_at = float("-inf")

    async def _not_older_than(self, age_seconds: float, response_version: ResponseVersion | None = None) -> Catalogue:
        version_min = 0 if response_version is None else response_version.at_least
        if not self._is_good(age_seconds, version_min):
            async with self._reading:
                if not self._is_good(age_seconds, version_min):
                    await self._read()
        assert self._catalogue is not None
        if response_version is not None:
            response_version.note(self._version)
        return self._catalogue

    def _is_good(self, age_seconds: float, version_min: int) -> bool:
        """Whether the copy is young enough, and includes `version_min`."""
        new_enough = self._version >= version_min
        return self._catalogue is not None and new_enough and time.monotonic() - self._read_at <= age_seconds

    async def _read(self) -> None:
        began = time.monotonic()
        read_at = ResponseVersion()
        async with self._database.for_request(read_at).reading() as reading:
            self._catalogue = await read_catalogue(reading)
        assert read_at.version is not None
        self._version = read_at.version
        self._read_at = began
