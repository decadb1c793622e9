"""Brings a subscriber what the feed has for it, over whatever connection: first from the log, then from its tail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from orchestrator.database.transactions import TransactionConflict
from orchestrator.log.feed.feed import Feed
from orchestrator.log.feed.subscribers import Subscriber
from orchestrator.log.store.feed import Scan
from orchestrator.problems import Problem

GOING_SECONDS_MAX = 5.0
"""How long is waited for a connection that was cut off to be gone."""


class Delivery:
    """One subscriber's. `write` sends a chunk over its connection, and returns when the connection takes more."""

    def __init__(self, feed: Feed, subscriber: Subscriber, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._feed = feed
        self._subscriber = subscriber
        self._write = write

    async def run(self) -> None:
        """Until the subscriber has ended. Raises what `write` raises."""
        try:
            await self._catch_up()
            await self._follow()
        finally:
            self._feed.detach(self._subscriber)

    async def send(self, chunk: bytes) -> None:
        """Send it now. Who takes nothing for too long is cut off."""
        try:
            async with asyncio.timeout(self._feed.limits.stall_seconds):
                await self._write(chunk)
        except TimeoutError:
            self._subscriber.cut_off()

    async def _catch_up(self) -> None:
        """Send what lies between the subscriber and the tail, and hand over."""
        subscriber, audience = self._subscriber, self._subscriber.audience
        while subscriber.ended is None and not self._feed.attach(subscriber):
            try:
                scan = await self._feed.read(subscriber)
                lacks = await self._lacks(scan)
            except (Problem, TransactionConflict):
                subscriber.finish("failed")
                return
            if lacks:
                subscriber.finish("log_truncated")
                return
            chunk = audience.frames(scan.events)
            if audience.has_checkpoints:
                subscriber.checkpoint = scan.scanned_to
                chunk += audience.checkpoint(scan.scanned_to, subscriber.leader_id)
            subscriber.cursor = scan.scanned_to
            del scan  # who reads slowly keeps what is sent to it, and no more
            if chunk:
                await self.send(chunk)

    async def _lacks(self, scan: Scan) -> bool:
        """Whether the log was truncated past the subscriber while it was behind: past its own events, for a tenant."""
        subscriber, audience = self._subscriber, self._subscriber.audience
        if scan.first <= subscriber.cursor + 1:
            return False
        return audience.tenant_id is None or await self._feed.lacks(subscriber)

    async def _follow(self) -> None:
        while (chunk := await self._subscriber.next()) is not None:
            await self._write(chunk)
            self._subscriber.taken()
