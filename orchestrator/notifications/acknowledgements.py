"""Batches acknowledgements: one write at a time per process, shared by all subscriptions that wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from uuid import UUID

from berth.process.combined_calls import CombinedCalls

ACKNOWLEDGED_MAX = 10_000
"""Most acknowledgements of one write: more than there are connections."""

Key = tuple[UUID, str]
Positions = Mapping[Key, int]
Store = Callable[[Sequence[tuple[UUID, str, int]]], Awaitable[Positions]]


class AcknowledgementWriter:
    """Writes acknowledged versions; calls that arrive during a write share the next one. `store` returns the offsets."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writes = CombinedCalls[tuple[Key, int], int | None](self._write, items_max=ACKNOWLEDGED_MAX)

    async def keep(self, scope: UUID, name: str, version: int) -> int | None:
        """Store a version; return the subscription's offset, at least `version`; None if it was removed.

        Raises what `store` raises.
        """
        return await self._writes.outcome(((scope, name), version))

    async def _write(self, acknowledged: Sequence[tuple[Key, int]]) -> list[int | None]:
        newest: dict[Key, int] = {}
        for key, version in acknowledged:
            newest[key] = max(version, newest.get(key, 0))
        positions = await self._store([(scope, name, version) for (scope, name), version in newest.items()])
        return [positions.get(key) for key, _ in acknowledged]
