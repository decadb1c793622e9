"""The answer to `GET /v1/subscribe`: a stream that the feed fills until one side ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fastapi.responses import Response

from orchestrator.api import metrics
from orchestrator.api.edge import Receive, Scope, Send
from orchestrator.api.log.feed import Feed
from orchestrator.api.log.frames import PRELUDE, end
from orchestrator.api.log.subscribers import Subscriber
from orchestrator.domain.errors import Forbidden, Problem, Unauthenticated
from orchestrator.store.database import TransactionConflict
from orchestrator.store.feed_rows import Scan
from orchestrator.store.told_versions import as_of

HEADERS = {"content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no"}
GOING_SECONDS_MAX = 5.0


class EventStream(Response):
    """Sends a subscriber what the feed has for it. `recheck` raises when it may not read any more."""

    def __init__(self, feed: Feed, subscriber: Subscriber, recheck: Callable[[], Awaitable[object]]) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._feed = feed
        self._subscriber = subscriber
        self._recheck = recheck

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Until the subscriber has ended. Raises `Overloaded`, before anything is sent, where there is no place."""
        as_of.set(None)
        subscriber = self._subscriber
        async with self._feed.place(subscriber.audience.tenant_id):
            await self._feed.start()
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            going = asyncio.create_task(_watch(receive, subscriber))
            try:
                await self._send(send, PRELUDE)
                await self._catch_up(send)
                await self._follow(send)
                if subscriber.is_slow:
                    await asyncio.wait([going], timeout=GOING_SECONDS_MAX)
                else:
                    last = end(str(subscriber.ended), subscriber.cursor)
                    await send({"type": "http.response.body", "body": last, "more_body": False})
            finally:
                going.cancel()
                self._feed.detach(subscriber)
                metrics.FEED_ENDED.labels(subscriber.ended or "stopping").inc()

    async def _send(self, send: Send, chunk: bytes) -> None:
        """Raises nothing: who takes nothing for too long is cut off."""
        try:
            async with asyncio.timeout(self._feed.limits.stall_seconds):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError:
            self._subscriber.cut_off()

    async def _catch_up(self, send: Send) -> None:
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
            if chunk:
                await self._send(send, chunk)

    async def _lacks(self, scan: Scan) -> bool:
        """Whether the log was truncated past the subscriber while it was behind: past its own events, for a tenant."""
        subscriber, audience = self._subscriber, self._subscriber.audience
        if scan.first <= subscriber.cursor + 1:
            return False
        return audience.tenant_id is None or await self._feed.lacks(subscriber)

    async def _follow(self, send: Send) -> None:
        recheck_seconds = self._feed.limits.keepalive_seconds
        recheck_at = time.monotonic() + recheck_seconds
        while (chunk := await self._subscriber.next()) is not None:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            self._subscriber.taken()
            if time.monotonic() >= recheck_at:
                recheck_at = time.monotonic() + recheck_seconds
                await self._require_welcome()

    async def _require_welcome(self) -> None:
        try:
            await self._recheck()
        except (Unauthenticated, Forbidden):
            self._subscriber.finish("unauthenticated")
        except Problem:
            return  # nobody can say now; it is asked again


async def _watch(receive: Receive, subscriber: Subscriber) -> None:
    """The client has gone when its connection has."""
    with suppress(Problem):
        while (await receive())["type"] != "http.disconnect":
            pass
    subscriber.finish("gone")
