"""Batches acknowledgements: one write at a time per process, shared by all subscriptions that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from uuid import UUID

Key = tuple[UUID, str]
Positions = Mapping[Key, int]
Store = Callable[[Sequence[tuple[UUID, str, int]]], Awaitable[Positions]]


class AcknowledgementWriter:
    """Writes acknowledged versions; calls that arrive during a write share the next one. `store` returns the offsets."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[Key, int] = {}
        self._writing: asyncio.Task[Positions] | None = None
        self._next: asyncio.Task[Positions] | None = None

    async def keep(self, scope: UUID, name: str, version: int) -> int | None:
        """Store a version; return the subscription's offset, at least `version`; None if it was removed.

        Raises what `store` raises.
        """
        key = scope, name
        self._waiting[key] = max(version, self._waiting.get(key, 0))
        if self._next is None:
            # A fresh context: the write belongs to no request.
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
    # The caller may have been cancelled; its failure must not be logged as unretrieved.
    if not written.cancelled():
        written.exception()
