"""A flood of unknown keys uses one connection for all of them, of the pool and of the reserve."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from orchestrator.database.transactions import connect_database
from orchestrator.http.authentication import Credentials
from orchestrator.http.key_lookups import DIGESTS_MAX, KeyLookups
from orchestrator.problems import DatabaseUnavailable, Unauthenticated
from orchestrator.tenants.principals import Principal
from tests.api.calling import insert_admin_key
from tests.support.waiting import async_wait_for

KEYS = 2 * DIGESTS_MAX + 1


class Database:
    """What a lookup needs of a database: for which verb it is asked."""

    def __init__(self, ending_verb: str = "") -> None:
        self.ending_verb = ending_verb


class Queries:
    """Queries that wait to be let go; every second key is live."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.at_once = self.at_once_max = 0
        self.go = asyncio.Event()
        self.error: Exception | None = None

    async def find(self, database: Any, digests: Sequence[bytes]) -> dict[bytes, Principal]:
        self.asked.append((database.ending_verb, len(digests)))
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        await self.go.wait()
        self.at_once -= 1
        if self.error is not None:
            raise self.error
        return {one: Principal("admin", uuid.UUID(int=1), None) for one in digests if one.endswith(b"0")}


def test_keys_that_are_asked_for_together_are_one_query_at_a_time() -> None:
    async def run() -> None:
        queries = Queries()
        lookups = KeyLookups(queries.find)
        database: Any = Database()
        asking = [asyncio.create_task(lookups.principal_of(database, b"%d" % number)) for number in range(KEYS)]
        ending: Any = Database("release")
        released = asyncio.create_task(lookups.principal_of(ending, b"10"))
        await async_wait_for(lambda: ("release", 1) in queries.asked, "a release that waits for no other's lookup", 10)
        queries.go.set()
        found = await asyncio.gather(*asking)
        assert [one is not None for one in found] == [number % 10 == 0 for number in range(KEYS)]
        assert await released is not None
        assert [count for verb, count in queries.asked if not verb] == [DIGESTS_MAX, DIGESTS_MAX, 1]
        assert queries.at_once_max == 2

    asyncio.run(run())


def test_a_failed_query_fails_its_keys_and_no_later_one() -> None:
    async def run() -> None:
        queries = Queries()
        lookups = KeyLookups(queries.find)
        queries.error = DatabaseUnavailable("gone")
        queries.go.set()
        database: Any = Database()
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable):
                await lookups.principal_of(database, b"0")
        queries.error = None
        assert await lookups.principal_of(database, b"0") is not None

    asyncio.run(run())


def test_a_live_key_among_unknown_ones_is_found(database_url: str) -> None:
    key = insert_admin_key(database_url)

    async def run() -> None:
        database = connect_database(
            database_url, pool_size=1, reserve_size=1, lock_timeout_seconds=1, transaction_timeout_seconds=5,
            application="berth-test",
        )  # fmt: skip
        try:
            credentials = Credentials(60.0)
            asked = [credentials.principal_of(database, f"berth_unknown_{number}") for number in range(200)]
            *unknown, live = await asyncio.gather(
                *asked, credentials.principal_of(database, key), return_exceptions=True
            )
        finally:
            await database.close()
        assert all(isinstance(one, Unauthenticated) for one in unknown)
        assert isinstance(live, Principal)
        assert live.role == "admin"

    asyncio.run(run())
