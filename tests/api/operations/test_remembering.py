"""Concurrent requests share one credential lookup, but a write that ends something waits for no other's connection (P13)."""

from __future__ import annotations

import asyncio

from orchestrator.database.transactions import Database, connect_database
from orchestrator.http.single_flight import SingleFlightCache
from tests.support.waiting import async_wait_for


def test_what_ends_something_does_not_wait_for_the_question_of_what_may_be_shed() -> None:
    async def scene() -> list[str]:
        asked: list[str] = []
        connections_are_free = asyncio.Event()

        async def ask(database: Database, key: str) -> str:
            asked.append(database.ending_verb)
            if not database.ending_verb:
                await connections_are_free.wait()
            return key

        remembered = SingleFlightCache(ask, 60.0)
        database = connect_database(
            "postgresql://nowhere", pool_size=1, reserve_size=1, lock_timeout_seconds=1, transaction_timeout_seconds=1,
            application="test",
        )  # fmt: skip
        holds = [asyncio.create_task(remembered.answer_for(database, "key")) for _ in range(3)]
        await async_wait_for(lambda: asked, "a hold to ask")
        assert await remembered.answer_for(database.for_request(ending_verb="release"), "key") == "key"
        assert not any(hold.done() for hold in holds)
        assert await remembered.answer_for(database, "key") == "key", "its answer serves all waiting requests"
        connections_are_free.set()
        assert await asyncio.gather(*holds) == ["key"] * 3
        return asked

    assert asyncio.run(asyncio.wait_for(scene(), 10)) == ["", "release"]
