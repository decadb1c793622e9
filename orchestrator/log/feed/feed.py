"""The feed: one tail of the log per process for all its subscribers (DESIGN §7).

A subscriber reads older events from the log itself, with bounded concurrency, until it is near the head; then the tail pushes
new events to it. Events are encoded once, and the subscribers of an audience share the bytes. Many audiences are served in turns
of the event loop, so that requests go on beside them.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from uuid import UUID

import structlog

from orchestrator.database.transactions import Database, TransactionConflict
from orchestrator.http import metrics
from orchestrator.log.feed.buffers import BufferBudget
from orchestrator.log.feed.frames import Audience, EncodedEvents, bytes_of
from orchestrator.log.feed.limits import FeedLimits
from orchestrator.log.feed.subscribers import Subscriber
from orchestrator.log.head import LogHead
from orchestrator.log.queries import find_kept, read_feed
from orchestrator.log.store.feed import ALL, FeedEvent, Scan
from orchestrator.log.store.head import Head
from orchestrator.problems import ConcurrencyLimited, Overloaded, Problem

log = structlog.get_logger("orchestrator.feed")
RETRY_SECONDS = 0.5
LIVENESS_SECONDS = 1.0
SECONDS_PER_SUBSCRIBER = 0.00005
"""Added to the tick per subscriber, so that many subscribers receive larger chunks: a write costs as much as two events."""
RECENT_EVENTS_MAX = 10_000
RECENT_BYTES_MAX = 8 * 1024 * 1024
TURN_SECONDS = 0.005
"""How long events are distributed before other tasks run."""
BACKLOG_BYTES_MAX = 1024 * 1024
"""The most bytes of recent events copied for one subscriber; one that is further behind keeps reading the log."""


def _is_whole(after: int, events: Sequence[FeedEvent]) -> bool:
    """Whether there are events, and each follows the one before it; the first follows version `after`."""
    for event in events:
        if event.before != after:
            return False
        after = event.version
    return bool(events)


class Feed:
    """The subscribers of this process, and the task that follows the log while there are any.

    `database` is used by the feed alone, so that feed and requests do not wait for each other's connections.
    """

    def __init__(self, database: Database, limits: FeedLimits) -> None:
        self.limits = limits
        self.budget = BufferBudget(limits.tenant_bytes_max, limits.bytes_max)
        self.head = LogHead(database, 0)
        self._database = database
        self._readers = asyncio.Semaphore(limits.readers_max)
        self._admitted: dict[UUID | None, int] = {}
        self._attached: dict[Audience, set[Subscriber]] = {}
        self._checkpoints: dict[Audience, tuple[int, float]] = {}
        self._recent: deque[FeedEvent] = deque()
        self._recent_bytes = 0
        self._at: Head | None = None
        self._tail: asyncio.Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def admit(self, tenant_id: UUID | None, tenant_max: int) -> AsyncIterator[None]:
        """Count a subscriber for the length of the context; `tenant_max`: the tenant's quota of streams.

        Raises `Overloaded` if the process has as many as it may, and `ConcurrencyLimited` if the tenant has.
        """
        admitted = self._admitted.get(tenant_id, 0)
        if self._closed:
            raise Overloaded("this process is stopping; use another replica")
        if sum(self._admitted.values()) >= self.limits.subscribers_max:
            raise Overloaded(
                f"the subscriber limit of {self.limits.subscribers_max} per process is reached; retry later or use another"
                " replica"
            )
        if tenant_id is not None and admitted >= tenant_max:
            raise ConcurrencyLimited(
                f"the limit of {tenant_max:,} streams and sockets of a tenant per process is reached;"
                " close one, use another replica, or ask the operator for more"
            )
        self._admitted[tenant_id] = admitted + 1
        metrics.FEED_SUBSCRIBERS.inc()
        try:
            yield
        finally:
            metrics.FEED_SUBSCRIBERS.dec()
            self._admitted[tenant_id] -= 1
            if not self._admitted[tenant_id]:
                del self._admitted[tenant_id]

    def open_streams(self, tenant_id: UUID | None) -> int:
        """How many subscribers of the tenant this process has."""
        return self._admitted.get(tenant_id, 0)

    async def read(self, subscriber: Subscriber) -> Scan:
        """Read the events after the subscriber's cursor from the log."""
        audience = subscriber.audience
        async with self._readers:
            if self._at is None:  # the tail has ended; `attach` finishes the subscriber
                return Scan([], subscriber.cursor, 0)
            return await read_feed(
                self._database,
                subscriber.cursor,
                self._at.version,
                audience.tenant_id,
                audience.chosen,
                catching_up=True,
            )

    async def is_truncated(self, subscriber: Subscriber) -> bool:
        """Return whether events of the subscriber's tenant after its cursor were dropped."""
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
        """Push everything after the subscriber's cursor and attach it to the tail. False if it is too far behind."""
        head = self._at
        if head is None or self._closed:
            subscriber.finish("stopping")
            return True
        if subscriber.leader_id != head.leader_id:
            subscriber.finish("leader_changed")
            return True
        begin = self._recent[0].before if self._recent else head.version
        missing = [event for event in self._recent if event.version > subscriber.cursor]
        if subscriber.cursor < begin or bytes_of(missing) > min(self.limits.buffer_bytes_max // 2, BACKLOG_BYTES_MAX):
            return False
        self._push_to(subscriber, missing, head)
        self._attached.setdefault(subscriber.audience, set()).add(subscriber)
        self._checkpoints.setdefault(subscriber.audience, (head.version, time.monotonic()))
        return True

    def detach(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""
        subscribers = self._attached.get(subscriber.audience)
        if subscribers is not None:
            subscribers.discard(subscriber)
            if not subscribers:
                del self._attached[subscriber.audience]
                self._checkpoints.pop(subscriber.audience, None)

    async def close(self, seconds_max: float) -> None:
        """End every stream. Return when each has sent its last message, or after `seconds_max`."""
        self._closed = True
        self._finish("stopping")
        deadline = time.monotonic() + seconds_max
        while self._admitted and time.monotonic() < deadline:
            await asyncio.sleep(self.limits.tick_seconds)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Stop the tail and close the database at the end of the block."""
        try:
            yield
        finally:
            await self.close(0.0)
            if self._tail is not None:
                self._tail.cancel()
                await asyncio.wait([self._tail])
            await self._database.close()

    def _finish(self, reason: str) -> None:
        for subscribers in list(self._attached.values()):
            for subscriber in subscribers:
                subscriber.finish(reason)

    def _ended(self, tail: asyncio.Task[None]) -> None:
        if not tail.cancelled() and tail.exception() is not None:
            log.critical("feed_tail_died", exc_info=tail.exception())
            self._finish("failed")

    async def _follow(self) -> None:
        try:
            await self._poll()
        finally:
            self._at = None
            self._recent.clear()
            self._recent_bytes = 0
            self._checkpoints.clear()

    async def _poll(self) -> None:
        """Poll until there are no subscribers, or another leader answers."""
        check_at = 0.0
        while self._admitted:
            try:
                if not await self._step():
                    return
            except (Problem, TransactionConflict) as error:
                log.warning("feed_read_failed", why=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            now = time.monotonic()
            if now >= check_at:
                check_at = now + LIVENESS_SECONDS
                self._check_liveness(now)
            self._push_checkpoints(now)
            many = sum(map(len, self._attached.values()))
            await asyncio.sleep(self.limits.tick_seconds + many * SECONDS_PER_SUBSCRIBER)

    async def _step(self) -> bool:
        """Distribute new events; False if the leader changed or the log was truncated past the tail."""
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
            if scan.first > before.version + 1:  # it was unable to read for longer than the log is kept
                self._finish("log_truncated")
                return False
            if not _is_whole(before.version, events):
                raise RuntimeError(f"versions are missing in the log after {before.version}")
            before = Head(scan.scanned_to, head.leader_id, head.accepted_leader_id)
            await self._distribute(events, before)
        return True

    async def _distribute(self, events: Sequence[FeedEvent], at: Head) -> None:
        assert self._at is not None, "called by the tail"
        # One that attaches from here on gets these events from the recent ones, and is not among those that are served below.
        begin, self._at = self._at.version, at
        self._keep_recent(events)
        attached = [(audience, list(subscribers)) for audience, subscribers in self._attached.items()]
        of_tenants: defaultdict[UUID | None, list[FeedEvent]] = defaultdict(list)
        for event in events:
            of_tenants[event.tenant_id].append(event)
        encoded = EncodedEvents()
        turn_ends = time.monotonic() + TURN_SECONDS
        for audience, subscribers in attached:
            chunk = audience.frames(events if audience.tenant_id is None else of_tenants[audience.tenant_id], encoded)
            if chunk and not audience.durable:
                chunk += self._checkpoint(audience, at)
            for subscriber in subscribers:
                if subscriber.cursor > begin:
                    self._push_to(subscriber, [event for event in events if event.version > subscriber.cursor], at)
                else:
                    subscriber.push(chunk)
                subscriber.advance(at.version)
            if time.monotonic() > turn_ends:
                await asyncio.sleep(0)
                turn_ends = time.monotonic() + TURN_SECONDS
        metrics.FEED_EVENTS.inc(len(events))

    def _keep_recent(self, events: Sequence[FeedEvent]) -> None:
        self._recent.extend(events)
        self._recent_bytes += bytes_of(events)
        while len(self._recent) > RECENT_EVENTS_MAX or self._recent_bytes > RECENT_BYTES_MAX:
            self._recent_bytes -= bytes_of([self._recent.popleft()])

    def _push_to(self, subscriber: Subscriber, events: Sequence[FeedEvent], at: Head) -> None:
        """Push events to one subscriber."""
        audience = subscriber.audience
        subscriber.advance(at.version)
        chunk = audience.frames(events)
        if audience.has_checkpoints and subscriber.checkpoint < subscriber.cursor:
            subscriber.checkpoint = subscriber.cursor
            chunk += audience.checkpoint(subscriber.cursor, at.leader_id)
        if chunk:
            subscriber.push(chunk)

    def _checkpoint(self, audience: Audience, at: Head) -> bytes:
        self._checkpoints[audience] = at.version, time.monotonic()
        return audience.checkpoint(at.version, at.leader_id)

    def _push_checkpoints(self, now: float) -> None:
        """Push checkpoints to audiences that receive them, at most every `checkpoint_seconds`."""
        for audience, subscribers in self._attached.items():
            if self._at is None or not audience.has_checkpoints:
                continue
            version, at = self._checkpoints.get(audience, (0, 0.0))
            if version < self._at.version and now - at >= self.limits.checkpoint_seconds:
                chunk = self._checkpoint(audience, self._at)
                for subscriber in subscribers:
                    subscriber.push(chunk)

    def _check_liveness(self, now: float) -> None:
        for subscribers in self._attached.values():
            for subscriber in subscribers:
                subscriber.check_liveness(now, self.limits.keepalive_seconds, self.limits.stall_seconds)
