"""One open socket of `GET /api/v1/notifications`: events out, acknowledgements in, until one side ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

from orchestrator.database.transactions import TransactionConflict
from orchestrator.http import metrics
from orchestrator.log.feed.delivery import GOING_SECONDS_MAX, Delivery
from orchestrator.log.feed.feed import Feed
from orchestrator.log.feed.limits import SocketLimits
from orchestrator.log.feed.subscribers import Subscriber
from orchestrator.log.refusals import MessageRefused, TooManyMessages
from orchestrator.notifications import messages
from orchestrator.notifications.acknowledgements import AcknowledgementWriter
from orchestrator.problems import Forbidden, NotFound, Problem, Unauthenticated

log = structlog.get_logger("orchestrator.notifications")
RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a named subscription keeps its position."""

    scope: UUID
    name: str


class NotificationSocket:
    """Serves one accepted socket. `recheck` raises when its caller may not read any more."""

    def __init__(
        self,
        socket: WebSocket,
        feed: Feed,
        subscriber: Subscriber,
        acknowledging: AcknowledgementWriter,
        recheck: Callable[[], Awaitable[object]],
        limits: SocketLimits,
        place: Place | None,
    ) -> None:
        self._socket = socket
        self._feed = feed
        self._subscriber = subscriber
        self._acknowledging = acknowledging
        self._recheck = recheck
        self._limits = limits
        self._place = place
        self._told = subscriber.cursor
        self._wanted = -1
        self._kept = -1
        self._acknowledged = asyncio.Event()
        self._refusal: Problem | None = None

    async def serve(self) -> None:
        """Until the subscriber has ended; then the socket is closed, with a word where one can be said."""
        started, subscriber = time.monotonic(), self._subscriber
        metrics.NOTIFICATION_SOCKETS.inc()
        delivery = Delivery(self._feed, subscriber, self._write)
        name = None if self._place is None else self._place.name
        beside = [asyncio.create_task(self._hear()), asyncio.create_task(self._watch_credential())]
        if self._place is not None:
            beside.append(asyncio.create_task(self._keep_position(self._place)))
        for task in beside:
            task.add_done_callback(self._fail_with)
        try:
            await self._socket.send_text(messages.begin(subscriber.cursor, subscriber.leader_id, name))
            await delivery.run()
            await self._close()
        except WebSocketDisconnect:
            subscriber.finish("gone")
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await self._keep_last()
            reason = subscriber.ended or "stopping"
            metrics.NOTIFICATION_SOCKETS.dec()
            metrics.NOTIFICATIONS_ENDED.labels(reason).inc()
            log.info(
                "notifications ended", reason=reason, subscription=name, tenant_id=subscriber.audience.tenant_id,
                version=subscriber.cursor, acknowledged=self._kept if self._kept >= 0 else None,
                seconds=round(time.monotonic() - started, 3), request_id=self._socket.scope["state"]["request_id"],
            )  # fmt: skip

    def _fail_with(self, task: asyncio.Task[None]) -> None:
        """A socket does not outlive what watches over it."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a socket of notifications failed", exc_info=error)
            self._subscriber.finish("failed")

    async def _write(self, chunk: bytes) -> None:
        """Each line is a message. Raises `WebSocketDisconnect` when the client has gone."""
        self._told = self._subscriber.cursor
        begin = 0
        while (end := chunk.find(b"\n", begin)) >= 0:  # a line at a time: there may be many, and who hears them slow
            try:
                await self._socket.send_text(chunk[begin:end].decode())
            except RuntimeError as gone:  # whoever said `acked` found it closed before
                raise WebSocketDisconnect from gone
            begin = end + 1

    async def _hear(self) -> None:
        """Take acknowledgements, no more of them a second than may be; anything else ends the socket."""
        second, heard = 0, 0
        try:
            while True:
                message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    self._subscriber.finish("stopping" if message.get("code") == messages.RESTART else "gone")
                    return
                now = int(time.monotonic())
                second, heard = now, (heard + 1 if now == second else 1)
                if heard > self._limits.messages_per_second_max:
                    raise TooManyMessages(f"a socket may send {self._limits.messages_per_second_max} messages a second")
                self._take(messages.acknowledged_version(message.get("text")))
        except (MessageRefused, TooManyMessages) as refusal:
            self._refuse(refusal)

    def _take(self, version: int) -> None:
        if self._place is None:
            raise MessageRefused("this socket has no subscription, so there is no position to keep")
        if version > self._told:
            raise MessageRefused(f"version {version} was not told here yet", version=self._told)
        if version >= self._wanted:  # said again, it is answered again
            self._wanted = version
            self._acknowledged.set()

    async def _keep_position(self, place: Place) -> None:
        """Write the newest acknowledgement, and no sooner again than the limits say."""
        while True:
            await self._acknowledged.wait()
            self._acknowledged.clear()
            try:
                kept = await self._acknowledging.keep(place.scope, place.name, self._wanted)
            except (Problem, TransactionConflict) as error:
                log.warning("position not kept", subscription=place.name, why=str(error))
                metrics.NOTIFICATION_POSITIONS.labels("failed").inc()
                self._acknowledged.set()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if kept is None:
                self._refuse(NotFound(f"the subscription {place.name!r} was removed"))
                return
            metrics.NOTIFICATION_POSITIONS.labels("kept").inc()
            self._kept = max(self._kept, kept)
            with suppress(WebSocketDisconnect, RuntimeError):
                await self._socket.send_text(messages.acked(kept))
            await asyncio.sleep(self._limits.ack_seconds)

    async def _keep_last(self) -> None:
        """What was acknowledged just before the end is kept as well, if it can be; else it is told again."""
        if self._place is None or self._wanted <= self._kept:
            return
        with suppress(Problem, TransactionConflict):
            self._kept = await self._acknowledging.keep(self._place.scope, self._place.name, self._wanted) or self._kept

    async def _watch_credential(self) -> None:
        while True:
            await asyncio.sleep(self._limits.recheck_seconds)
            try:
                await self._recheck()
            except (Unauthenticated, Forbidden):
                self._subscriber.finish("unauthenticated")
                return
            except Problem:
                continue  # nobody can say now; it is asked again

    def _refuse(self, refusal: Problem) -> None:
        self._refusal = refusal
        self._subscriber.finish(refusal.code)

    async def _close(self) -> None:
        """The last word, and the close code. Raises `WebSocketDisconnect` when the client has gone."""
        subscriber = self._subscriber
        reason = subscriber.ended
        if subscriber.is_slow or reason is None or reason == "gone":
            return
        async with asyncio.timeout(GOING_SECONDS_MAX):
            with suppress(RuntimeError):  # closed from outside meanwhile
                if self._refusal is not None:
                    await self._socket.send_text(messages.error(self._refusal))
                    await self._socket.close(messages.closing_code(self._refusal), self._refusal.code)
                else:
                    await self._socket.send_text(messages.ended(reason, subscriber.cursor))
                    await self._socket.close(messages.CLOSING[reason], reason)
