"""Delivers the feed to a subscriber over any connection: first from the log, then from the process's tail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from orchestrator.database.transactions import TransactionConflict
from orchestrator.log.feed.feed import Feed
from orchestrator.log.feed.subscribers import Subscriber
from orchestrator.log.store.feed import Scan
from orchestrator.problems import Problem

DISCONNECT_SECONDS_MAX = 5.0
"""Longest wait for the connection of a disconnected slow consumer to close."""


class SubscriberDelivery:
    """Delivers to one subscriber. `write` sends a chunk and returns when the connection accepts more."""

    def __init__(self, feed: Feed, subscriber: Subscriber, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._feed = feed
        self._subscriber = subscriber
        self._write = write
        subscriber.count_in(feed.budget)

    async def run(self) -> None:
        """Deliver until the subscriber ends. Raises what `write` raises."""
        try:
            await self._catch_up()
            await self._follow()
        finally:
            self._feed.detach(self._subscriber)
            self._subscriber.release()

    async def send(self, chunk: bytes) -> None:
        """Send a chunk; disconnect a consumer that accepts nothing for `stall_seconds`."""
        try:
            async with asyncio.timeout(self._feed.limits.stall_seconds):
                await self._write(chunk)
        except TimeoutError:
            self._subscriber.disconnect_slow()

    async def _catch_up(self) -> None:
        """Send the events between the subscriber's cursor and the tail, then attach it to the tail."""
        subscriber, audience = self._subscriber, self._subscriber.audience
        while subscriber.ended is None and not self._feed.attach(subscriber):
            try:
                scan = await self._feed.read(subscriber)
                truncated = await self._is_truncated(scan)
            except (Problem, TransactionConflict):
                subscriber.finish("failed")
                return
            if truncated:
                subscriber.finish("log_truncated")
                return
            chunk = audience.frames(scan.events)
            if audience.has_checkpoints:
                subscriber.checkpoint = scan.scanned_to
                chunk += audience.checkpoint(scan.scanned_to, subscriber.leader_id)
            subscriber.cursor = scan.scanned_to
            del scan  # a slow consumer must hold only the chunk in memory
            subscriber.push(chunk)
            del chunk
            await self._send_waiting()

    async def _is_truncated(self, scan: Scan) -> bool:
        """Return whether events that the subscriber has not received (a tenant: its own) were dropped."""
        subscriber, audience = self._subscriber, self._subscriber.audience
        if scan.first <= subscriber.cursor + 1:
            return False
        return audience.tenant_id is None or await self._feed.is_truncated(subscriber)

    async def _send_waiting(self) -> None:
        """Send what waits: what a consumer that catches up does not read counts as any other chunk."""
        while self._subscriber.has_waiting and (chunk := await self._subscriber.next()) is not None:
            await self.send(chunk)
            self._subscriber.mark_sent()

    async def _follow(self) -> None:
        while (chunk := await self._subscriber.next()) is not None:
            await self._write(chunk)
            self._subscriber.mark_sent()
