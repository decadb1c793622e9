"""Messages of a durable JetStream consumer, as they come, for as long as the process lives.

One pull request with a long expiry stays open, topped up while messages arrive, so a message is here as soon as the
server has it. NATS sends signs of life on an idle pull; when they stop, or the server ends the pull, a new subscription
is made (TRAPS, NATS: pull subscriptions can stall after a reconnect). Wire format: NATS ADR-13 "Pull Subscribe".
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
    """This subscription brings nothing more; the reason is a word for the log."""


class Puller:
    """Pulls up to `messages_max` at a time from one consumer; `bind` makes sure that the consumer exists."""

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
        self._asked = 0

    async def messages(self) -> AsyncIterator[Msg]:
        """Every message, with subscriptions renewed as needed. Ends only when its task is cancelled."""
        while True:
            if not await self._bind():
                await asyncio.sleep(RENEWAL_PAUSE_SECONDS)
                continue
            inbox = self._connection.new_inbox()
            try:
                subscription = await self._connection.subscribe(inbox)
            except nats.errors.Error as error:
                log.warning("cannot_subscribe", why=str(error))
                await asyncio.sleep(RENEWAL_PAUSE_SECONDS)
                continue
            try:
                async for message in self._pull(subscription, inbox):
                    yield message
            except PullEnded as ended:
                PULL_RENEWALS.labels(str(ended)).inc()
                log.info("pull_renewed", reason=str(ended))
            finally:
                await _leave(subscription)
            await asyncio.sleep(RENEWAL_PAUSE_SECONDS)

    async def _pull(self, subscription: Subscription, inbox: str) -> AsyncIterator[Msg]:
        self._asked = 0
        patience_seconds = self._heartbeat_seconds * HEARTBEATS_MISSED_MAX
        while True:
            if self._asked <= self._messages_max // 2:
                await self._ask(inbox)
            try:
                message = await subscription.next_msg(timeout=patience_seconds)
            except nats.errors.TimeoutError as error:
                raise PullEnded("silence") from error
            except nats.errors.Error as error:
                raise PullEnded(type(error).__name__) from error
            if self._is_message(message):
                self._asked -= 1
                yield message

    def _is_message(self, message: Msg) -> bool:
        """False for a sign of life or the end of one request. Raises `PullEnded` if the server wants no more of it."""
        headers = message.headers or {}
        status = headers.get("Status")
        if status is None or message.data:
            return True
        if status in _PULL_ENDED:
            self._asked -= int(headers.get("Nats-Pending-Messages", self._messages_max))
        elif status != _IDLE_HEARTBEAT:
            raise PullEnded(f"status_{status}")
        return False

    async def _ask(self, inbox: str) -> None:
        request = {
            "batch": self._messages_max - self._asked,
            "expires": int(EXPIRY_SECONDS * 1e9),
            "idle_heartbeat": int(self._heartbeat_seconds * 1e9),
        }
        try:
            await self._connection.publish(self._subject, orjson.dumps(request), reply=inbox)
        except nats.errors.Error as error:
            raise PullEnded(type(error).__name__) from error
        self._asked = self._messages_max


async def _leave(subscription: Subscription) -> None:
    try:
        await subscription.unsubscribe()
    except nats.errors.Error as error:
        log.debug("unsubscribed_late", why=str(error))
