"""A subscriber's bounded send buffer, and the rules by which slow consumers are disconnected."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from orchestrator.log.feed.frames import Audience


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
        self._bytes = 0
        self._changed = asyncio.Event()
        self._cut = cut

    def push(self, chunk: bytes) -> None:
        """Append a chunk; disconnect the subscriber if its buffer would exceed the bound."""
        if self.ended is not None:
            return
        if self._bytes and self._bytes + len(chunk) > self._buffer_bytes_max:
            self.disconnect_slow()
            return
        self._chunks.append(chunk)
        self._bytes += len(chunk)
        self._pushed_at = time.monotonic()
        self._changed.set()

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
        self._chunks.clear()
        self.finish("slow")
        self._cut()

    def finish(self, reason: str) -> None:
        """End the subscriber after the waiting chunks."""
        if self.ended is None:
            self.ended = reason
            self._changed.set()

    async def next(self) -> bytes | None:
        """Return all waiting chunks, or wait for the next one; None at the end."""
        while not self._chunks:
            if self.ended is not None:
                return None
            self._changed.clear()
            await self._changed.wait()
        self._sending_since = time.monotonic()
        chunk = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        return chunk

    def mark_sent(self) -> None:
        """Record that the last result of `next` was sent."""
        self._sending_since = None
        self._bytes = sum(map(len, self._chunks))
