"""Who is calling is asked once for all who want to know, but what ends something waits for no other's connection (P13)."""

from __future__ import annotations

import asyncio

from orchestrator.database.transactions import ending
from orchestrator.http.single_flight import Remembered


def test_what_ends_something_does_not_wait_for_the_question_of_what_may_be_shed() -> None:
    async def scene() -> list[str]:
        asked: list[str] = []
        connections_are_free = asyncio.Event()

        async def ask(key: str) -> str:
            asked.append(ending.get())
            if not ending.get():
                await connections_are_free.wait()
            return key

        remembered = Remembered(ask, 60.0)
        holds = [asyncio.create_task(remembered.answer_for("key")) for _ in range(3)]
        while not asked:
            await asyncio.sleep(0)
        before = ending.set("release")
        assert await remembered.answer_for("key") == "key"
        ending.reset(before)
        assert not any(hold.done() for hold in holds)
        assert await remembered.answer_for("key") == "key", "its answer serves everybody"
        connections_are_free.set()
        assert await asyncio.gather(*holds) == ["key"] * 3
        return asked

    assert asyncio.run(asyncio.wait_for(scene(), 10)) == ["", "release"]
