"""The answer to `GET /v1/subscribe`: a stream that the feed fills until one side ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fastapi.responses import Response

from orchestrator.http import metrics
from orchestrator.http.asgi import Receive, Scope, Send
from orchestrator.log.feed.delivery import GOING_SECONDS_MAX, Delivery
from orchestrator.log.feed.feed import Feed
from orchestrator.log.feed.frames import PRELUDE, end
from orchestrator.log.feed.subscribers import Subscriber
from orchestrator.problems import Forbidden, Problem, Unauthenticated

HEADERS = {"content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no"}


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
        subscriber = self._subscriber
        recheck_seconds = self._feed.limits.keepalive_seconds
        recheck_at = time.monotonic() + recheck_seconds

        async def write(chunk: bytes) -> None:
            nonlocal recheck_at
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if time.monotonic() >= recheck_at:
                recheck_at = time.monotonic() + recheck_seconds
                await self._require_welcome()

        async with self._feed.place(subscriber.audience.tenant_id):
            await self._feed.start()
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            going = asyncio.create_task(_watch(receive, subscriber))
            delivery = Delivery(self._feed, subscriber, write)
            try:
                await delivery.send(PRELUDE)
                await delivery.run()
                if subscriber.is_slow:
                    await asyncio.wait([going], timeout=GOING_SECONDS_MAX)
                else:
                    last = end(str(subscriber.ended), subscriber.cursor)
                    await send({"type": "http.response.body", "body": last, "more_body": False})
            finally:
                going.cancel()
                metrics.FEED_ENDED.labels(subscriber.ended or "stopping").inc()

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
