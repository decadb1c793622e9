"""One subscriber: what waits to be sent to it, bounded, and when it is cut off."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from orchestrator.log.feed.frames import Audience


class Subscriber:
    """Chunks on their way to one connection: shared bytes, so a thousand that wait for the same cost little.

    `cursor`: everything of its audience up to this version was pushed; `checkpoint`: up to which it was told so alone.
    `cut` closes the connection, whatever is still to be sent over it.
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
        self._something = asyncio.Event()
        self._cut = cut

    def push(self, chunk: bytes) -> None:
        """Send this next. Who has more waiting than the bound is cut off, and comes again from where it was."""
        if self.ended is not None:
            return
        if self._bytes and self._bytes + len(chunk) > self._buffer_bytes_max:
            self.cut_off()
            return
        self._chunks.append(chunk)
        self._bytes += len(chunk)
        self._pushed_at = time.monotonic()
        self._something.set()

    def advance(self, version: int) -> None:
        """Everything up to `version` was pushed. Ignored after the end: what was not pushed is not sent."""
        if self.ended is None:
            self.cursor = max(self.cursor, version)

    def tend(self, now: float, keepalive_seconds: float, stall_seconds: float) -> None:
        """Called about every second: a sign of life where there was none, an end where nothing is taken any more."""
        if self._sending_since is not None and now - self._sending_since > stall_seconds:
            self.cut_off()
        elif now - self._pushed_at > keepalive_seconds:
            self.push(self.audience.keepalive)

    def cut_off(self) -> None:
        """It does not read: end it without another word, for it would not read that either."""
        self.is_slow = True
        self._chunks.clear()
        self.finish("slow")
        self._cut()

    def finish(self, reason: str) -> None:
        """Nothing more comes after what waits."""
        if self.ended is None:
            self.ended = reason
            self._something.set()

    async def next(self) -> bytes | None:
        """All that waits, at once, or the next that comes; None at the end."""
        while not self._chunks:
            if self.ended is not None:
                return None
            self._something.clear()
            await self._something.wait()
        self._sending_since = time.monotonic()
        chunk = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        return chunk

    def taken(self) -> None:
        """What `next` answered is on its way."""
        self._sending_since = None
        self._bytes = sum(map(len, self._chunks))
