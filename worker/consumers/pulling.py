"""Pulls the messages of a durable JetStream consumer and renews the subscription when it ends or stalls.

One pull request with a long expiry stays open and is topped up while messages arrive, so that a message is delivered as
soon as the server stores it. NATS sends heartbeats on an idle pull; if they stop, or the server ends the pull, a new
subscription is made, because a pull can stall after a reconnect. Wire format: NATS ADR-13 "Pull Subscribe".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import nats.errors
import orjson
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from worker.metrics import PULL_RENEWALS

log = structlog.get_logger()

EXPIRY_SECONDS = 30.0
RENEWAL_PAUSE_SECONDS = 0.2
HEARTBEATS_MISSED_MAX = 2.5

_IDLE_HEARTBEAT = "100"
_PULL_ENDED = frozenset({"404", "408"})


class PullEnded(Exception):
    """This subscription delivers no more messages; the message is the reason, a metric label."""


class Puller:
    """Pulls up to `messages_max` messages at a time from one consumer. `bind` creates the consumer if it is missing."""

    def __init__(
        self,
        connection: Client,
        *,
        stream: str,
        consumer: str,
        messages_max: int,
        heartbeat_seconds: float,
        bind: Callable[[], Awaitable[bool]],
    ) -> None:
        self._connection = connection
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._messages_max = messages_max
        self._heartbeat_seconds = heartbeat_seconds
        self._bind = bind
        self._requested = 0

    async def messages(self) -> AsyncIterator[Msg]:
        """Yield every message, renewing the subscription as needed. Ends only when its task is cancelled."""
        while True:
            if not await self._bind():
                await asyncio.sleep(RENEWAL_PAUSE_SECONDS)
                continue
            inbox = self._connection.new_inbox()
            try:
                subscription = await self._connection.subscribe(inbox)
            except nats.errors.Error as error:
                log.warning("subscribe_failed", why=str(error))
                await asyncio.sleep(RENEWAL_PAUSE_SECONDS)
                continue
            try:
                async for message in self._pull(subscription, inbox):
                    yield message
            except PullEnded as ended:
                PULL_RENEWALS.labels(str(ended)).inc()
                log.info("pull_renewed", reason=str(ended))
            finally:
                await _unsubscribe(subscription)
            await asyncio.sleep(RENEWAL_PAUSE_SECONDS)

    async def _pull(self, subscription: Subscription, inbox: str) -> AsyncIterator[Msg]:
        self._requested = 0
        silence_seconds_max = self._heartbeat_seconds * HEARTBEATS_MISSED_MAX
        while True:
            if self._requested <= self._messages_max // 2:
                await self._request(inbox)
            try:
                message = await subscription.next_msg(timeout=silence_seconds_max)
            except nats.errors.TimeoutError as error:
                raise PullEnded("silence") from error
            except nats.errors.Error as error:
                raise PullEnded(type(error).__name__) from error
            if self._is_message(message):
                self._requested -= 1
                yield message

    def _is_message(self, message: Msg) -> bool:
        """False for a heartbeat or the end of one request. Raises `PullEnded` if the server ended the pull."""
        headers = message.headers or {}
        status = headers.get("Status")
        if status is None or message.data:
            return True
        if status in _PULL_ENDED:
            self._requested -= int(headers.get("Nats-Pending-Messages", self._messages_max))
        elif status != _IDLE_HEARTBEAT:
            raise PullEnded(f"status_{status}")
        return False

    async def _request(self, inbox: str) -> None:
        request = {
            "batch": self._messages_max - self._requested,
            "expires": int(EXPIRY_SECONDS * 1e9),
            "idle_heartbeat": int(self._heartbeat_seconds * 1e9),
        }
        try:
            await self._connection.publish(self._subject, orjson.dumps(request), reply=inbox)
        except nats.errors.Error as error:
            raise PullEnded(type(error).__name__) from error
        self._requested = self._messages_max


async def _unsubscribe(subscription: Subscription) -> None:
    try:
        await subscription.unsubscribe()
    except nats.errors.Error as error:
        log.debug("unsubscribe_failed", why=str(error))
