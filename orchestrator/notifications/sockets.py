"""An open socket of `GET /api/v1/notifications`: sends events and receives acknowledgements until either side closes."""

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
from orchestrator.http.sockets.credentials import until_refused
from orchestrator.log.feed.delivery import DISCONNECT_SECONDS_MAX, SubscriberDelivery
from orchestrator.log.feed.feed import Feed
from orchestrator.log.feed.limits import SocketLimits
from orchestrator.log.feed.subscribers import Subscriber
from orchestrator.notifications import messages
from orchestrator.notifications.acknowledgements import AcknowledgementWriter
from orchestrator.notifications.refusals import MessageRefused, TooManyMessages
from orchestrator.problems import NotFound, Problem

log = structlog.get_logger("orchestrator.notifications")
RETRY_SECONDS = 1.0
"""Statuses of a check whose credential gives no right any more, a key or a token."""


@dataclass(frozen=True, slots=True)
class SubscriptionKey:
    """The key of a named subscription."""

    scope: UUID
    name: str


class NotificationSocket:
    """Serves one accepted socket. `recheck` raises when its credential is no longer valid."""

    def __init__(
        self,
        socket: WebSocket,
        feed: Feed,
        subscriber: Subscriber,
        acknowledging: AcknowledgementWriter,
        recheck: Callable[[], Awaitable[object]],
        limits: SocketLimits,
        subscription: SubscriptionKey | None,
    ) -> None:
        self._socket = socket
        self._feed = feed
        self._subscriber = subscriber
        self._acknowledging = acknowledging
        self._recheck = recheck
        self._limits = limits
        self._subscription = subscription
        self._sent = subscriber.cursor
        self._wanted = -1
        self._stored = -1
        self._acknowledged = asyncio.Event()
        self._refusal: Problem | None = None

    async def serve(self) -> None:
        """Serve until the subscriber ends, then close the socket, with a final message if it can be sent."""
        started, subscriber = time.monotonic(), self._subscriber
        metrics.NOTIFICATION_SOCKETS.inc()
        delivery = SubscriberDelivery(self._feed, subscriber, self._write)
        name = None if self._subscription is None else self._subscription.name
        tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._watch_credential())]
        if self._subscription is not None:
            tasks.append(asyncio.create_task(self._store_position(self._subscription)))
        for task in tasks:
            task.add_done_callback(self._fail_with)
        try:
            await self._socket.send_text(messages.begin(subscriber.cursor, subscriber.leader_id, name))
            await delivery.run()
            await self._close()
        except WebSocketDisconnect:
            subscriber.finish("gone")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._store_last()
            reason = subscriber.ended or "stopping"
            metrics.NOTIFICATION_SOCKETS.dec()
            metrics.NOTIFICATIONS_ENDED.labels(reason).inc()
            log.info(
                "notifications_ended", reason=reason, subscription=name, tenant_id=subscriber.audience.tenant_id,
                version=subscriber.cursor, acknowledged=self._stored if self._stored >= 0 else None,
                seconds=round(time.monotonic() - started, 3), request_id=self._socket.scope["state"]["request_id"],
            )  # fmt: skip

    def _fail_with(self, task: asyncio.Task[None]) -> None:
        """End the socket if one of its tasks failed."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("notification_socket_failed", exc_info=error)
            self._subscriber.finish("failed")

    async def _write(self, chunk: bytes) -> None:
        """Send each line as a message. Raises `WebSocketDisconnect` if the client has disconnected."""
        self._sent = self._subscriber.cursor
        begin = 0
        while (end := chunk.find(b"\n", begin)) >= 0:  # one line at a time, because a chunk may hold many
            try:
                await self._socket.send_text(chunk[begin:end].decode())
            except RuntimeError as gone:  # the task that sends `acked` found it closed first
                raise WebSocketDisconnect from gone
            begin = end + 1

    async def _receive(self) -> None:
        """Receive acknowledgements, within the rate limit; any other message ends the socket."""
        second, received = 0, 0
        try:
            while True:
                message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    self._subscriber.finish("stopping" if message.get("code") == messages.RESTART else "gone")
                    return
                now = int(time.monotonic())
                second, received = now, (received + 1 if now == second else 1)
                if received > self._limits.messages_per_second_max:
                    raise TooManyMessages(
                        f"at most {self._limits.messages_per_second_max} messages per second are allowed; acknowledge less often"
                    )
                self._acknowledge(messages.acknowledged_version(message.get("text")))
        except (MessageRefused, TooManyMessages) as refusal:
            self._refuse(refusal)

    def _acknowledge(self, version: int) -> None:
        if self._subscription is None:
            raise MessageRefused(
                "this socket has no subscription, so it accepts no acknowledgements; reconnect with `subscription`"
            )
        if version > self._sent:
            raise MessageRefused(
                f"version {version} was not sent on this socket; the last one is {self._sent}", version=self._sent
            )
        if version >= self._wanted:  # a repeated acknowledgement is answered again
            self._wanted = version
            self._acknowledged.set()

    async def _store_position(self, subscription: SubscriptionKey) -> None:
        """Store the newest acknowledgement, at most every `ack_seconds`."""
        while True:
            await self._acknowledged.wait()
            self._acknowledged.clear()
            try:
                stored = await self._acknowledging.keep(subscription.scope, subscription.name, self._wanted)
            except (Problem, TransactionConflict) as error:
                log.warning("position_not_stored", subscription=subscription.name, why=str(error))
                metrics.NOTIFICATION_POSITIONS.labels("failed").inc()
                self._acknowledged.set()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if stored is None:
                self._refuse(NotFound(f"the subscription {subscription.name!r} was removed"))
                return
            metrics.NOTIFICATION_POSITIONS.labels("kept").inc()
            self._stored = max(self._stored, stored)
            with suppress(WebSocketDisconnect, RuntimeError):
                await self._socket.send_text(messages.acked(stored))
            await asyncio.sleep(self._limits.ack_seconds)

    async def _store_last(self) -> None:
        """Store an acknowledgement that arrived just before the end; if that fails its events are sent again."""
        if self._subscription is None or self._wanted <= self._stored:
            return
        with suppress(Problem, TransactionConflict):
            self._stored = (
                await self._acknowledging.keep(self._subscription.scope, self._subscription.name, self._wanted)
                or self._stored
            )

    async def _watch_credential(self) -> None:
        await until_refused(self._recheck, self._limits.recheck_seconds)
        self._subscriber.finish("unauthenticated")

    def _refuse(self, refusal: Problem) -> None:
        self._refusal = refusal
        self._subscriber.finish(refusal.code)

    async def _close(self) -> None:
        """Send the last message and close. Raises `WebSocketDisconnect` if the client has disconnected."""
        subscriber = self._subscriber
        reason = subscriber.ended
        if subscriber.is_slow or reason is None or reason == "gone":
            return
        async with asyncio.timeout(DISCONNECT_SECONDS_MAX):
            with suppress(RuntimeError):  # closed from outside meanwhile
                if self._refusal is not None:
                    await self._socket.send_text(messages.error(self._refusal))
                    await self._socket.close(messages.closing_code(self._refusal), self._refusal.code)
                else:
                    await self._socket.send_text(messages.ended(reason, subscriber.cursor))
                    await self._socket.close(messages.CLOSING[reason], reason)
