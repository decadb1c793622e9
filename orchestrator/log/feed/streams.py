"""The response of `GET /v1/subscribe`: a stream of server-sent events until either side ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fastapi.responses import Response

from orchestrator.http import metrics
from orchestrator.http.asgi import Receive, Scope, Send
from orchestrator.http.sockets.credentials import CREDENTIAL_REFUSED
from orchestrator.log.feed.delivery import DISCONNECT_SECONDS_MAX, SubscriberDelivery
from orchestrator.log.feed.feed import Feed
from orchestrator.log.feed.frames import PRELUDE, end
from orchestrator.log.feed.subscribers import Subscriber
from orchestrator.problems import Problem

HEADERS = {"content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no"}


class EventStream(Response):
    """Streams the feed to a subscriber. `recheck` raises when its credential is no longer valid.

    `tenant_max`: the quota of streams of the subscriber's tenant.
    """

    def __init__(
        self, feed: Feed, subscriber: Subscriber, recheck: Callable[[], Awaitable[object]], tenant_max: int
    ) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._feed = feed
        self._subscriber = subscriber
        self._recheck = recheck
        self._tenant_max = tenant_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the subscriber ends. Raises `Overloaded` before anything is sent if a subscriber limit is reached."""
        subscriber = self._subscriber
        recheck_seconds = self._feed.limits.keepalive_seconds
        recheck_at = time.monotonic() + recheck_seconds

        async def write(chunk: bytes) -> None:
            nonlocal recheck_at
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if time.monotonic() >= recheck_at:
                recheck_at = time.monotonic() + recheck_seconds
                await self._check_credential()

        async with self._feed.admit(subscriber.audience.tenant_id, self._tenant_max):
            await self._feed.start()
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            watching = asyncio.create_task(_watch(receive, subscriber))
            delivery = SubscriberDelivery(self._feed, subscriber, write)
            try:
                await delivery.send(PRELUDE)
                await delivery.run()
                if subscriber.is_slow:
                    await asyncio.wait([watching], timeout=DISCONNECT_SECONDS_MAX)
                else:
                    last = end(str(subscriber.ended), subscriber.cursor)
                    await send({"type": "http.response.body", "body": last, "more_body": False})
            finally:
                watching.cancel()
                metrics.FEED_ENDED.labels(subscriber.ended or "stopping").inc()

    async def _check_credential(self) -> None:
        try:
            await self._recheck()
        except Problem as problem:
            # Any other status is a check that failed, and is repeated.
            if problem.status in CREDENTIAL_REFUSED:
                self._subscriber.finish("unauthenticated")


async def _watch(receive: Receive, subscriber: Subscriber) -> None:
    """Finish the subscriber when its client disconnects."""
    with suppress(Problem):
        while (await receive())["type"] != "http.disconnect":
            pass
    subscriber.finish("gone")
