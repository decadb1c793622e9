"""Combines calls: items that arrive while a call runs share the next one."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


@dataclass(slots=True, eq=False)
class _Call(Generic[Item, Outcome]):
    """Items of one call: more may be added until it runs."""

    items: list[Item] = field(default_factory=list)
    outcomes: asyncio.Task[Sequence[Outcome]] | None = None


class CombinedCalls(Generic[Item, Outcome]):
    """One call at a time, of at most `items_max` items in the order of their arrival; a single item waits for no other.

    `call` returns one outcome per item, in input order; what it raises, each of its items raises. A caller that is cancelled
    leaves its item in the call.
    """

    def __init__(self, call: Callable[[Sequence[Item]], Awaitable[Sequence[Outcome]]], *, items_max: int) -> None:
        self._call = call
        self._items_max = items_max
        self._next: _Call[Item, Outcome] | None = None
        self._turn = asyncio.Lock()

    async def outcome(self, item: Item) -> Outcome:
        """The outcome of one item. Raises what its call raised."""
        call = self._next
        if call is None or len(call.items) >= self._items_max:
            call = self._next = _Call()
        place = len(call.items)
        call.items.append(item)
        if call.outcomes is None:
            # A fresh context: the call belongs to no request.
            call.outcomes = asyncio.create_task(self._run(call), context=contextvars.Context())
            call.outcomes.add_done_callback(_retrieve)
        return (await asyncio.shield(call.outcomes))[place]

    async def _run(self, call: _Call[Item, Outcome]) -> Sequence[Outcome]:
        async with self._turn:
            if self._next is call:
                self._next = None
            return await self._call(call.items)


def _retrieve(outcomes: asyncio.Task[Sequence[Outcome]]) -> None:
    # Every caller may have been cancelled; a failure must not be logged as unretrieved.
    if not outcomes.cancelled():
        outcomes.exception()
