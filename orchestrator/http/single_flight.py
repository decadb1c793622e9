"""Caches answers of the database for a short time and coalesces the requests that miss the same key (single-flight)."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from orchestrator.database.transactions import Database

ENTRIES_MAX = 10_000

Key = TypeVar("Key")
Value = TypeVar("Value")


# Not cachetools.TTLCache: an entry ages from the moment the database was asked, not from when it was stored.
class SingleFlightCache(Generic[Key, Value]):
    """Answers of `ask`, trusted for `seconds` from when they were asked for.

    At most `ENTRIES_MAX` are kept, and as many that are None or False: what anyone can ask for evicts nothing else.
    """

    def __init__(self, ask: Callable[[Database, Key], Awaitable[Value]], seconds: float) -> None:
        self._ask = ask
        self._seconds = seconds
        self._known: OrderedDict[Key, tuple[float, Value]] = OrderedDict()
        self._refuted: OrderedDict[Key, tuple[float, Value]] = OrderedDict()
        self._asking: dict[tuple[Key, str], asyncio.Task[tuple[float, Value]]] = {}

    async def answer_for(self, database: Database, key: Key) -> Value:
        """The answer, at most `seconds` old, asked for through `database`. Raises what `ask` raises, uncached."""
        found = self._known.get(key) or self._refuted.get(key)
        if found is not None and found[0] > time.monotonic():
            return found[1]
        # Ending verbs have reserved connections, so they do not join a question that waits for the pool (P13).
        question = (key, database.ending_verb)
        asking = self._asking.get(question)
        if asking is None:
            # The question continues when the request that began it is cancelled: others wait for the same answer.
            asking = asyncio.create_task(self._put(database.for_request(ending_verb=database.ending_verb), key))
            self._asking[question] = asking
            asking.add_done_callback(lambda ended: self._asked(question, ended))
        return (await asyncio.shield(asking))[1]

    async def _put(self, database: Database, key: Key) -> tuple[float, Value]:
        asked_at = time.monotonic()
        return asked_at + self._seconds, await self._ask(database, key)

    def _asked(self, question: tuple[Key, str], ended: asyncio.Task[tuple[float, Value]]) -> None:
        """Remember the answer, unless `forget` was called since the question was put."""
        if self._asking.get(question) is not ended:
            return
        del self._asking[question]
        if ended.cancelled() or ended.exception() is not None:
            return
        key, answer = question[0], ended.result()
        table, other = (self._known, self._refuted) if answer[1] else (self._refuted, self._known)
        other.pop(key, None)
        table[key] = answer
        table.move_to_end(key)
        while len(table) > ENTRIES_MAX:
            table.popitem(last=False)

    def forget_answers(self, is_stale: Callable[[Value], bool]) -> None:
        """Ask anew for the keys of these answers, and of questions that are put at this moment."""
        for key in [key for key, (_, value) in self._known.items() if is_stale(value)]:
            del self._known[key]
        self._asking.clear()

    def forget(self) -> None:
        """Ask anew for everything from now on."""
        self._known.clear()
        self._refuted.clear()
        self._asking.clear()
