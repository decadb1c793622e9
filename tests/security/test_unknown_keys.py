"""A flood of unknown keys uses two connections for all of them, none of the pool and none of the reserve."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from orchestrator.database.reserve import POOL_TIMEOUT_SECONDS
from orchestrator.database.schema_revision import require_schema_for_anyone
from orchestrator.database.transactions import connect_database
from orchestrator.http import single_flight
from orchestrator.http.authentication import Credentials
from orchestrator.http.key_lookups import DIGESTS_MAX, KeyLookups
from orchestrator.http.single_flight import SingleFlightCache
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


async def hold_connection(database: Any, held: asyncio.Semaphore, go: asyncio.Event) -> None:
    """Occupy a connection until `go` is set."""
    async with database.reading() as reading:
        await reading.execute("select 1")
        held.release()
        await go.wait()


def test_an_unknown_key_needs_no_connection_of_the_pool_or_the_reserve(database_url: str) -> None:
    key = insert_admin_key(database_url)

    async def run() -> None:
        database = connect_database(
            database_url, pool_size=1, reserve_size=2, lock_timeout_seconds=1, transaction_timeout_seconds=60,
            application="berth-test",
        )  # fmt: skip
        held, go = asyncio.Semaphore(0), asyncio.Event()
        verbs = ("", "release", "cancel")
        holding = [asyncio.create_task(hold_connection(database.for_request(None, verb), held, go)) for verb in verbs]
        try:
            for _ in verbs:
                await held.acquire()
            credentials = Credentials(60.0)
            for verb in ("", "release"):
                asking = database.for_request(None, verb)
                async with asyncio.timeout(POOL_TIMEOUT_SECONDS / 2):
                    with pytest.raises(Unauthenticated):
                        await credentials.principal_of(asking, f"berth_unknown_{verb}")
                    assert (await credentials.principal_of(asking, key)).role == "admin"
                    await require_schema_for_anyone(asking)
        finally:
            go.set()
            await asyncio.gather(*holding)
            await database.close()

    asyncio.run(run())


def test_unknown_keys_evict_no_live_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_flight, "ENTRIES_MAX", 10)

    class Asked(Database):
        def for_request(self, response_version: object = None, ending_verb: str = "") -> Asked:
            return self

    async def run() -> None:
        asked: list[str] = []

        async def ask(database: Any, key: str) -> str | None:
            asked.append(key)
            return "principal" if key == "live" else None

        cache = SingleFlightCache(ask, 60.0)
        database: Any = Asked()
        assert await cache.answer_for(database, "live") == "principal"
        for number in range(100):
            assert await cache.answer_for(database, str(number)) is None
        assert await cache.answer_for(database, "live") == "principal"
        assert await cache.answer_for(database, "99") is None
        assert await cache.answer_for(database, "0") is None
        assert asked.count("live") == 1, "a live key is still known"
        assert asked.count("99") == 1, "the answer to an unknown key is kept"
        assert asked.count("0") == 2, "in a bounded table"

    asyncio.run(run())
