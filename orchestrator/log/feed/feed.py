"""The feed: one tail of the log per process, however many subscribe (DESIGN §7).

A subscriber reads what lies behind it from the log by itself, a few at a time in a process, until it is near the tail's
end; then the tail hands it what comes. What many get is made once, and they share its bytes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from uuid import UUID

import structlog

from orchestrator.database.transactions import Database, TransactionConflict
from orchestrator.http import metrics
from orchestrator.log.feed.frames import Audience, bytes_of
from orchestrator.log.feed.limits import FeedLimits
from orchestrator.log.feed.subscribers import Subscriber
from orchestrator.log.head import LogHead
from orchestrator.log.queries import find_kept, read_feed
from orchestrator.log.store.feed import ALL, FeedEvent, Scan
from orchestrator.log.store.head import Head
from orchestrator.problems import Overloaded, Problem

log = structlog.get_logger("orchestrator.feed")
RETRY_SECONDS = 0.5
TENDING_SECONDS = 1.0
SECONDS_PER_SUBSCRIBER = 0.00005
"""The more there are, the more is sent at once: a write costs as much as an event or two."""
RECENT_EVENTS_MAX = 10_000
RECENT_BYTES_MAX = 8 * 1024 * 1024
HANDED_BYTES_MAX = 1024 * 1024
"""Of what is recent, so much is copied for one subscriber at most; who lacks more reads on from the log, bit by bit."""


class Feed:
    """Who subscribes at this process, and the task that follows the log while anybody does.

    `database` is the feed's own: neither waits for requests nor keeps them waiting.
    """

    def __init__(self, database: Database, limits: FeedLimits) -> None:
        self.limits = limits
        self.head = LogHead(database, 0)
        self._database = database
        self._readers = asyncio.Semaphore(limits.readers_max)
        self._places: dict[UUID | None, int] = {}
        self._attached: dict[Audience, set[Subscriber]] = {}
        self._told: dict[Audience, tuple[int, float]] = {}
        self._recent: deque[FeedEvent] = deque()
        self._recent_bytes = 0
        self._at: Head | None = None
        self._tail: asyncio.Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def place(self, tenant_id: UUID | None) -> AsyncIterator[None]:
        """A subscriber's place at this process for the length of the context. Raises `Overloaded` where there is none."""
        taken = self._places.get(tenant_id, 0)
        full = sum(self._places.values()) >= self.limits.subscribers_max
        if self._closed or full or (tenant_id is not None and taken >= self.limits.tenant_subscribers_max):
            raise Overloaded("as many subscribe here as may; try again, or at another process")
        self._places[tenant_id] = taken + 1
        metrics.FEED_SUBSCRIBERS.inc()
        try:
            yield
        finally:
            metrics.FEED_SUBSCRIBERS.dec()
            self._places[tenant_id] -= 1
            if not self._places[tenant_id]:
                del self._places[tenant_id]

    async def read(self, subscriber: Subscriber) -> Scan:
        """What follows the subscriber's cursor in the log."""
        audience = subscriber.audience
        async with self._readers:
            if self._at is None:  # the tail has ended meanwhile, and `attach` says why
                return Scan([], subscriber.cursor, 0)
            return await read_feed(
                self._database, subscriber.cursor, self._at.version, audience.tenant_id, audience.chosen
            )

    async def lacks(self, subscriber: Subscriber) -> bool:
        """Whether events of its tenant behind its cursor are not kept any more."""
        async with self._readers:
            return (await find_kept(self._database, subscriber.cursor, subscriber.audience.tenant_id))[1]

    async def start(self) -> None:
        """Return when the tail follows the log."""
        if self._tail is None or self._tail.done():
            self._tail = asyncio.create_task(self._follow(), context=Context())
            self._tail.add_done_callback(self._ended)
        while self._at is None and not self._closed and not self._tail.done():
            await asyncio.sleep(self.limits.tick_seconds)

    def attach(self, subscriber: Subscriber) -> bool:
        """Hand it everything from its cursor on, if that is near enough; else False: it must read on by itself."""
        head = self._at
        if head is None or self._closed:
            subscriber.finish("stopping")
            return True
        if subscriber.leader_id != head.leader_id:
            subscriber.finish("leader_changed")
            return True
        begin = self._recent[0].version - 1 if self._recent else head.version
        missing = [event for event in self._recent if event.version > subscriber.cursor]
        if subscriber.cursor < begin or bytes_of(missing) > min(self.limits.buffer_bytes_max // 2, HANDED_BYTES_MAX):
            return False
        self._hand(subscriber, missing, head)
        self._attached.setdefault(subscriber.audience, set()).add(subscriber)
        self._told.setdefault(subscriber.audience, (head.version, time.monotonic()))
        return True

    def detach(self, subscriber: Subscriber) -> None:
        """It is gone."""
        those = self._attached.get(subscriber.audience)
        if those is not None:
            those.discard(subscriber)
            if not those:
                del self._attached[subscriber.audience]
                self._told.pop(subscriber.audience, None)

    def close(self) -> None:
        """End every stream, so that the listener can stop at once."""
        self._closed = True
        self._finish("stopping")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let nothing of it outlive the block."""
        try:
            yield
        finally:
            self.close()
            if self._tail is not None:
                self._tail.cancel()
                await asyncio.wait([self._tail])
            await self._database.close()

    def _finish(self, reason: str) -> None:
        for those in list(self._attached.values()):
            for subscriber in those:
                subscriber.finish(reason)

    def _ended(self, tail: asyncio.Task[None]) -> None:
        if not tail.cancelled() and tail.exception() is not None:
            log.critical("the tail of the log died; its subscribers come again", exc_info=tail.exception())
            self._finish("failed")

    async def _follow(self) -> None:
        try:
            await self._steps()
        finally:
            self._at = None
            self._recent.clear()
            self._recent_bytes = 0
            self._told.clear()

    async def _steps(self) -> None:
        """Until nobody subscribes any more, or another Postgres answers."""
        tend_at = 0.0
        while self._places:
            try:
                if not await self._step():
                    return
            except (Problem, TransactionConflict) as error:
                log.warning("feed", why=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            now = time.monotonic()
            if now >= tend_at:
                tend_at = now + TENDING_SECONDS
                self._tend(now)
            self._tell_checkpoints(now)
            many = sum(map(len, self._attached.values()))
            await asyncio.sleep(self.limits.tick_seconds + many * SECONDS_PER_SUBSCRIBER)

    async def _step(self) -> bool:
        """Hand on what is new; False when it is another's log now."""
        head = await self.head.fresh()
        before = self._at
        if before is None:
            self._at = head
            return True
        if head.leader_id != before.leader_id or not head.is_accepted or head.version < before.version:
            self._finish("leader_changed")
            return False
        while before.version < head.version:
            scan = await read_feed(self._database, before.version, head.version, None, ALL)
            events = scan.events
            if scan.first > before.version + 1:  # it could not read for longer than the log is kept
                self._finish("log_truncated")
                return False
            if not events or events[-1].version - before.version != len(events):
                raise RuntimeError(f"versions are missing in the log behind {before.version}")
            before = Head(scan.scanned_to, head.leader_id, head.accepted_leader_id)
            self._hand_on(events, before)
        return True

    def _hand_on(self, events: Sequence[FeedEvent], at: Head) -> None:
        assert self._at is not None, "the tail runs"
        begin, self._at = self._at.version, at
        for audience, those in self._attached.items():
            chunk = audience.frames(events)
            if chunk and not audience.durable:
                chunk += self._checkpoint(audience, at)
            for subscriber in those:
                if subscriber.cursor > begin:
                    self._hand(subscriber, [event for event in events if event.version > subscriber.cursor], at)
                elif chunk:
                    subscriber.push(chunk)
                subscriber.advance(at.version)
        self._recent.extend(events)
        self._recent_bytes += bytes_of(events)
        while len(self._recent) > RECENT_EVENTS_MAX or self._recent_bytes > RECENT_BYTES_MAX:
            self._recent_bytes -= bytes_of([self._recent.popleft()])
        metrics.FEED_EVENTS.inc(len(events))

    def _hand(self, subscriber: Subscriber, events: Sequence[FeedEvent], at: Head) -> None:
        """What one subscriber alone lacks."""
        audience = subscriber.audience
        subscriber.advance(at.version)
        chunk = audience.frames(events)
        if audience.has_checkpoints and subscriber.checkpoint < subscriber.cursor:
            subscriber.checkpoint = subscriber.cursor
            chunk += audience.checkpoint(subscriber.cursor, at.leader_id)
        if chunk:
            subscriber.push(chunk)

    def _checkpoint(self, audience: Audience, at: Head) -> bytes:
        self._told[audience] = at.version, time.monotonic()
        return audience.checkpoint(at.version, at.leader_id)

    def _tell_checkpoints(self, now: float) -> None:
        """To those who are told positions, not more often than the setting says."""
        for audience, those in self._attached.items():
            if self._at is None or not audience.has_checkpoints:
                continue
            version, at = self._told.get(audience, (0, 0.0))
            if version < self._at.version and now - at >= self.limits.checkpoint_seconds:
                chunk = self._checkpoint(audience, self._at)
                for subscriber in those:
                    subscriber.push(chunk)

    def _tend(self, now: float) -> None:
        for those in self._attached.values():
            for subscriber in those:
                subscriber.tend(now, self.limits.keepalive_seconds, self.limits.stall_seconds)
