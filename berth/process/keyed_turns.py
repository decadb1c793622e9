"""Turns by key: a bounded number of holders at once, the others wait in order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class _Turns:
    free: asyncio.Semaphore
    users: int = 0


class KeyedTurns(Generic[Key]):
    """At most `turns_max` holders of each key. Holds an entry for each key in use, and no others."""

    def __init__(self, turns_max: int) -> None:
        self._turns_max = turns_max
        self._by_key: dict[Key, _Turns] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def is_free(self, key: Key) -> bool:
        """Whether `take` returns at once."""
        turns = self._by_key.get(key)
        return turns is None or not turns.free.locked()

    async def take(self, key: Key) -> None:
        """Return when this caller has a turn of the key; it gives it back by `give_back`."""
        turns = self._by_key.setdefault(key, _Turns(asyncio.Semaphore(self._turns_max)))
        turns.users += 1
        try:
            await turns.free.acquire()
        except BaseException:
            self._leave(key, turns)
            raise

    def give_back(self, key: Key) -> None:
        """End a turn; the caller that has waited longest has it next."""
        turns = self._by_key[key]
        turns.free.release()
        self._leave(key, turns)

    def _leave(self, key: Key, turns: _Turns) -> None:
        turns.users -= 1
        if not turns.users:
            del self._by_key[key]
