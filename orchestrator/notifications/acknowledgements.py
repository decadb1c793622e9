"""Positions of subscriptions on their way to Postgres: one write at a time in a process, however many acknowledge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from uuid import UUID

Key = tuple[UUID, str]
Positions = Mapping[Key, int]
Store = Callable[[Sequence[tuple[UUID, str, int]]], Awaitable[Positions]]


class AcknowledgementWriter:
    """Who comes while a write is under way shares the next one. `store` writes positions and answers where each stands."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[Key, int] = {}
        self._writing: asyncio.Task[Positions] | None = None
        self._next: asyncio.Task[Positions] | None = None

    async def keep(self, scope: UUID, name: str, version: int) -> int | None:
        """Where the subscription stands in Postgres, at least at `version`; None where it is there no more.

        Raises what the store raises.
        """
        key = scope, name
        self._waiting[key] = max(version, self._waiting.get(key, 0))
        if self._next is None:
            # In a context of its own: it is nobody's request.
            self._next = asyncio.create_task(self._write_after(self._writing), context=Context())
            self._next.add_done_callback(_retrieve)
        return (await asyncio.shield(self._next)).get(key)

    async def _write_after(self, writing: asyncio.Task[Positions] | None) -> Positions:
        if writing is not None:
            await asyncio.wait([writing])
        self._writing, self._next = self._next, None
        waiting, self._waiting = self._waiting, {}
        return await self._store([(scope, name, version) for (scope, name), version in waiting.items()])


def _retrieve(written: asyncio.Task[Positions]) -> None:
    """Whoever acknowledged may be gone; its failure is nobody's then."""
    if not written.cancelled():
        written.exception()
