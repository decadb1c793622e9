"""The gate's entries: a bounded map of operations in flight and of recent responses. Pure; O(1) throughout.

Operations in flight are never evicted. Responses are: the least recently used first, and at the end of their time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

SWEPT_MAX = 1_024
"""Most answers that one sweep checks, so that no request pays for many others."""

Key = TypeVar("Key", bound=Hashable)
Owner = TypeVar("Owner")
Concluded = TypeVar("Concluded")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Concluded]):
    answer: Concluded
    expires_at: float
    size: int


# Not cachetools.TTLCache: each response has its own deadline, entries in flight are never evicted, and a sweep is bounded.
class GateEntries(Generic[Key, Owner, Concluded]):
    """At most `entries_max` of both kinds together, and answers of `bytes_max`. Times are of one monotonic clock, in seconds."""

    def __init__(self, entries_max: int, bytes_max: int, cleanup_interval_seconds: float) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._cleanup_interval_seconds = cleanup_interval_seconds
        self._next_cleanup_at = 0.0
        self._pending: dict[Key, Owner] = {}
        self._concluded: OrderedDict[Key, _Entry[Concluded]] = OrderedDict()

    def answer(self, key: Key, now: float) -> Concluded | None:
        """The answer, while its time lasts; it counts as used now."""
        found = self._concluded.get(key)
        if found is None:
            return None
        if found.expires_at <= now:
            self._evict(key)
            return None
        self._concluded.move_to_end(key)
        return found.answer

    def owner(self, key: Key) -> Owner | None:
        """The request that executes the operation."""
        return self._pending.get(key)

    def begin(self, key: Key, owner: Owner) -> int | None:
        """Enter the operation as under way; how many answers had to go, or None if there is no room for it.

        Its key must have neither an owner nor an answer that lasts.
        """
        assert key not in self._pending, "an operation has one owner"
        evicted = self._make_room(0 if key in self._concluded else 1)
        if evicted is None:
            return None
        if key in self._concluded:
            self._evict(key)
        self._pending[key] = owner
        return evicted

    def conclude(self, key: Key, owner: Owner, answer: Concluded, expires_at: float, size: int) -> int:
        """The operation is over, and this is its answer of `size` bytes until then; how many answers had to go.

        Nothing happens if it has another owner, or none. An answer larger than the bound is not kept.
        """
        if self._pending.get(key) is not owner:
            return 0
        del self._pending[key]
        self._concluded[key] = _Entry(answer, expires_at, size)
        self._bytes += size
        evicted = 0
        while self._bytes > self._bytes_max:
            self._evict(next(iter(self._concluded)))
            evicted += 1
        return evicted

    def drop(self, key: Key, owner: Owner) -> None:
        """The operation is over, and nothing is known of it. Nothing happens if it has another owner, or none."""
        if self._pending.get(key) is owner:
            del self._pending[key]

    def sweep(self, now: float) -> int:
        """Let go of answers whose time is over, every now and then; how many. Those in use lately may stay until later."""
        if now < self._next_cleanup_at:
            return 0
        for swept in range(SWEPT_MAX):
            oldest = next(iter(self._concluded.items()), None)
            if oldest is None or oldest[1].expires_at > now:
                self._next_cleanup_at = now + self._cleanup_interval_seconds
                return swept
            self._evict(oldest[0])
        return SWEPT_MAX

    def forget(self) -> None:
        """Let go of every answer."""
        self._concluded.clear()
        self._bytes = 0

    @property
    def pending(self) -> int:
        """How many operations are under way."""
        return len(self._pending)

    @property
    def bytes(self) -> int:
        """The size of the answers that are remembered."""
        return self._bytes

    @property
    def concluded(self) -> int:
        """How many answers are remembered."""
        return len(self._concluded)

    def _make_room(self, wanted: int) -> int | None:
        """How many answers were evicted so that `wanted` entries fit; None if even all of them would not do."""
        excess = len(self._pending) + len(self._concluded) + wanted - self._entries_max
        if excess > len(self._concluded):
            return None
        for _ in range(excess):
            self._evict(next(iter(self._concluded)))
        return max(excess, 0)

    def _evict(self, key: Key) -> None:
        self._bytes -= self._concluded.pop(key).size
