"""The bytes that wait for subscribers, bounded for each tenant and for the process.

A chunk that several subscribers of a tenant wait for counts once. Beyond a bound the subscriber that has read nothing for the
longest time is disconnected, as any slow consumer: it resumes by its position.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID


class Holder(Protocol):
    """A subscriber: `unread_since` is the time since which its oldest chunk waits."""

    @property
    def tenant_id(self) -> UUID | None:
        """Whose it is; None: an operator's."""

    @property
    def unread_since(self) -> float:
        """On the monotonic clock."""

    def disconnect_slow(self) -> None:
        """End it, and remove what it holds."""


@dataclass(eq=False, slots=True)
class _Held:
    """What waits for one tenant: chunks with the number of their users, by identity, and the chunks of each holder."""

    size: int = 0
    users: dict[int, int] = field(default_factory=dict)
    holders: dict[Holder, int] = field(default_factory=dict)


class BufferBudget:
    """Counts the chunks of a process. Holds an entry for each tenant for which something waits, and no others."""

    def __init__(self, tenant_bytes_max: int, bytes_max: int) -> None:
        self._tenant_bytes_max = tenant_bytes_max
        self._bytes_max = bytes_max
        self._by_tenant: dict[UUID | None, _Held] = {}
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes that wait now."""
        return self._size

    def add(self, holder: Holder, chunk: bytes) -> None:
        """Count a chunk that waits for this subscriber; disconnect those that do not read where a bound is exceeded."""
        held = self._by_tenant.setdefault(holder.tenant_id, _Held())
        key = id(chunk)  # its holder keeps it alive
        before = held.users.get(key, 0)
        held.users[key] = before + 1
        held.holders[holder] = held.holders.get(holder, 0) + 1
        if before:
            return
        held.size += len(chunk)
        self._size += len(chunk)
        while held.size > self._tenant_bytes_max and held.holders:
            _disconnect_slowest(held)
        while self._size > self._bytes_max and self._by_tenant:
            _disconnect_slowest(max(self._by_tenant.values(), key=lambda each: each.size))

    def remove(self, holder: Holder, chunk: bytes) -> None:
        """The chunk waits for this subscriber no longer."""
        held = self._by_tenant[holder.tenant_id]
        key = id(chunk)
        held.users[key] -= 1
        if not held.users[key]:
            del held.users[key]
            held.size -= len(chunk)
            self._size -= len(chunk)
        held.holders[holder] -= 1
        if not held.holders[holder]:
            del held.holders[holder]
        if not held.holders:
            del self._by_tenant[holder.tenant_id]


def _disconnect_slowest(held: _Held) -> None:
    min(held.holders, key=lambda holder: holder.unread_since).disconnect_slow()
