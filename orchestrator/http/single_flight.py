"""Remembers answers for a short time, and asks once for all who want the same one meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from orchestrator.database.response_versions import as_of
from orchestrator.database.transactions import ending

ENTRIES_MAX = 10_000

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """What `ask` answered, trusted for `seconds` from when it was asked. At most `ENTRIES_MAX` answers are kept."""

    def __init__(self, ask: Callable[[Key], Awaitable[Value]], seconds: float) -> None:
        self._ask = ask
        self._seconds = seconds
        self._known: OrderedDict[Key, tuple[float, Value]] = OrderedDict()
        self._asking: dict[tuple[Key, str], asyncio.Task[tuple[float, Value]]] = {}

    async def answer_for(self, key: Key) -> Value:
        """The answer, at most `seconds` old. Raises what `ask` raises, which is not remembered."""
        found = self._known.get(key)
        if found is not None and found[0] > time.monotonic():
            return found[1]
        # What ends something has connections of its own, so it does not join a question that waits for another (P13).
        question = (key, ending.get())
        asking = self._asking.get(question)
        if asking is None:
            # One question for all who come with this key meanwhile; it goes on when the first of them goes away.
            asking = asyncio.create_task(self._put(key))
            self._asking[question] = asking
            asking.add_done_callback(lambda ended: self._asked(question, ended))
        return (await asyncio.shield(asking))[1]

    async def _put(self, key: Key) -> tuple[float, Value]:
        as_of.set(None)  # in this task: what is remembered is no answer's content
        asked_at = time.monotonic()
        return asked_at + self._seconds, await self._ask(key)

    def _asked(self, question: tuple[Key, str], ended: asyncio.Task[tuple[float, Value]]) -> None:
        """Remember the answer, unless `forget` was called since the question was put."""
        if self._asking.get(question) is not ended:
            return
        del self._asking[question]
        if ended.cancelled() or ended.exception() is not None:
            return
        key = question[0]
        self._known[key] = ended.result()
        self._known.move_to_end(key)
        while len(self._known) > ENTRIES_MAX:
            self._known.popitem(last=False)

    def forget(self) -> None:
        """Ask anew for everything from now on."""
        self._known.clear()
        self._asking.clear()
