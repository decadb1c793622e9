"""A link to the database that is lost without a word is noticed; one on which nothing is said for as long is not."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from orchestrator.database.transactions import Database, connect_database
from orchestrator.problems import DatabaseUnavailable
from tests.allocations.seeding import connect
from tests.proxy import Proxies
from tests.support.waiting import async_wait_for

WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name like 'link-%'"


# Waits for keepalives. tests/api/test_process.py loses a database in `make test`.
@pytest.mark.full
def test_a_lost_link_is_noticed_and_a_wait_for_a_lock_is_not_taken_for_one(database_url: str) -> None:
    parts = urlsplit(database_url)
    assert parts.port is not None
    proxies = Proxies()
    proxy = proxies.make("lost", parts.port)
    through = parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{proxy.port}").geturl()

    def database(url: str, application: str) -> Database:
        return connect_database(
            url, pool_size=1, reserve_size=1, lock_timeout_seconds=100, transaction_timeout_seconds=100,
            application=application,
        )  # fmt: skip

    async def take_lock(database: Database) -> None:
        async with database.transaction() as tx:
            await tx.execute("select pg_advisory_xact_lock_shared(1)")

    async def scene() -> None:
        lost, whole = database(through, "link-lost"), database(database_url, "link-whole")
        with connect(database_url) as holder:
            holder.execute("select pg_advisory_lock(1)")
            over_lost, over_whole = asyncio.create_task(take_lock(lost)), asyncio.create_task(take_lock(whole))
            await async_wait_for(lambda: holder.execute(WAITING).fetchone() == (2,), "both to wait for the lock")
            assert not over_lost.done()
            proxy.vanish()
            async with asyncio.timeout(60):  # left alone, TCP asks after two hours for the first time
                with pytest.raises(DatabaseUnavailable):
                    await over_lost
            assert not over_whole.done(), "it waits for its lock"
            holder.execute("select pg_advisory_unlock(1)")
        await over_whole
        await take_lock(lost)  # on a new connection
        await lost.close()
        await whole.close()

    try:
        asyncio.run(scene())
    finally:
        proxies.close()
