"""A subscriber's bounded send buffer, and the rules by which slow consumers are disconnected."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from uuid import UUID

from orchestrator.log.feed.buffers import BufferBudget
from orchestrator.log.feed.frames import Audience

JOINED_BYTES_MAX = 64 * 1024
"""Small chunks are sent together; so many bytes of a connection's are no other's as well."""


class Subscriber:
    """The chunks waiting for one connection. Chunks are shared, so subscribers that wait for the same events cost little.

    `cursor`: every event of its audience up to this version was pushed; `checkpoint`: the last checkpoint sent to it alone.
    `cut` closes the connection at once.
    """

    def __init__(
        self, audience: Audience, cursor: int, leader_id: str, buffer_bytes_max: int, cut: Callable[[], None]
    ) -> None:
        self.audience = audience
        self.cursor = cursor
        self.leader_id = leader_id
        self.checkpoint = -1
        self.ended: str | None = None
        self.is_slow = False
        self._pushed_at = time.monotonic()
        self._sending_since: float | None = None
        self._buffer_bytes_max = buffer_bytes_max
        self._chunks: deque[bytes] = deque()
        self._sending: list[bytes] = []
        self._released = False
        self._budget: BufferBudget | None = None
        self._bytes = 0
        self.unread_since = 0.0
        self._changed = asyncio.Event()
        self._cut = cut

    @property
    def tenant_id(self) -> UUID | None:
        """The tenant of its audience."""
        return self.audience.tenant_id

    def count_in(self, budget: BufferBudget) -> None:
        """Count what waits for it in this budget: called once, before anything waits."""
        self._budget = budget

    def push(self, chunk: bytes) -> None:
        """Append a chunk; disconnect the subscriber if its buffer would exceed the bound."""
        if self.ended is not None or self._released or not chunk:
            return
        if self._bytes and self._bytes + len(chunk) > self._buffer_bytes_max:
            self.disconnect_slow()
            return
        now = time.monotonic()
        if not self._bytes:
            self.unread_since = now
        self._chunks.append(chunk)
        self._bytes += len(chunk)
        self._pushed_at = now
        self._changed.set()
        if self._budget is not None:
            self._budget.add(self, chunk)

    def advance(self, version: int) -> None:
        """Advance the cursor. Ignored after the end, when nothing more is pushed."""
        if self.ended is None:
            self.cursor = max(self.cursor, version)

    def check_liveness(self, now: float, keepalive_seconds: float, stall_seconds: float) -> None:
        """Send a keepalive if nothing was pushed, and disconnect if a write stalls. Called about every second."""
        if self._sending_since is not None and now - self._sending_since > stall_seconds:
            self.disconnect_slow()
        elif now - self._pushed_at > keepalive_seconds:
            self.push(self.audience.keepalive)

    def disconnect_slow(self) -> None:
        """Disconnect a slow consumer at once, without a final message, which it would not read."""
        self.is_slow = True
        self.finish("slow")
        self.release()
        self._cut()

    def release(self) -> None:
        """Drop everything that waits; nothing is pushed any more."""
        self._released = True
        self._drop([*self._sending, *self._chunks])
        self._sending = []
        self._chunks.clear()

    def _drop(self, chunks: list[bytes]) -> None:
        self._bytes -= sum(map(len, chunks))
        if self._budget is not None:
            for chunk in chunks:
                self._budget.remove(self, chunk)

    def finish(self, reason: str) -> None:
        """End the subscriber after the waiting chunks."""
        if self.ended is None:
            self.ended = reason
            self._changed.set()

    @property
    def has_waiting(self) -> bool:
        """Whether `next` returns at once."""
        return bool(self._chunks)

    async def next(self) -> bytes | None:
        """Return the waiting chunks, small ones together, or wait for the next one; None at the end."""
        while not self._chunks:
            if self.ended is not None:
                return None
            self._changed.clear()
            await self._changed.wait()
        self._sending_since = time.monotonic()
        self._sending = [self._chunks.popleft()]
        size = len(self._sending[0])
        while self._chunks and size + len(self._chunks[0]) <= JOINED_BYTES_MAX:
            self._sending.append(self._chunks.popleft())
            size += len(self._sending[-1])
        return self._sending[0] if len(self._sending) == 1 else b"".join(self._sending)

    def mark_sent(self) -> None:
        """Record that the last result of `next` was sent."""
        self._sending_since = None
        self._drop(self._sending)
        self._sending = []
        self.unread_since = time.monotonic()
