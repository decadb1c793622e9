"""NATS JetStream as a source of events: stream sequence = version (docs/reference/events.md, docs/how-to/consume-events.md).

It needs no durable consumer and acknowledges nothing: the position in Postgres is the truth, and what the stream is asked
for begins behind it. A stream that was made anew, or a subscription that stalls, is left and asked again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator
from uuid import UUID

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import Error as JetStreamError

from berth.client.feed.events import VERSIONS_SKIPPED, Event, event_of_cloud
from berth.client.log_errors import LogTruncated

log = logging.getLogger("berth.client.nats_source")
SUBJECTS = "berth.events"
FETCH_MAX = 500
FETCH_SECONDS = 5.0
SILENT_FETCHES_MAX = 3
INACTIVE_SECONDS = 60.0
FIRST_PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 10.0
_PASSING = (nats.errors.Error, JetStreamError, OSError, asyncio.TimeoutError)


class NatsSource:
    """Events of the stream, of one tenant if named. The connection is the caller's, and reconnects by itself."""

    def __init__(self, connection: Client, *, stream: str = "BERTH_LOG", tenant_id: UUID | None = None) -> None:
        self._connection = connection
        self._stream = stream
        self._tenant_id = tenant_id
        self._tries = 0

    async def event_lists(self, after: int) -> AsyncGenerator[list[Event], None]:
        """As `consumer.Source` says. Raises `LogTruncated` where the stream begins beyond the next version."""
        while True:
            subscription = None
            try:
                subscription = await self._subscribe(after)
                silent = 0
                while silent < SILENT_FETCHES_MAX:
                    events = await self._fetch(subscription)
                    if not events:
                        silent += 1
                        continue
                    silent, self._tries = 0, 0
                    yield events
                    after = max(after, events[-1].version)
            except _PASSING as error:
                step = min(PAUSE_SECONDS_MAX, FIRST_PAUSE_SECONDS * 2.0 ** min(self._tries, 16))
                self._tries += 1
                log.warning("cannot read the stream %s: %s", self._stream, str(error) or type(error).__name__)
                await asyncio.sleep(step * random.uniform(0.5, 1.0))
            finally:
                await _leave(subscription)

    async def _subscribe(self, after: int) -> JetStreamContext.PullSubscription:
        stream = self._connection.jetstream()
        state = (await stream.stream_info(self._stream)).state
        if (
            state.first_seq > after + 1
            and state.last_seq > after
            and not await self._skips(stream, state.first_seq, after)
        ):
            raise LogTruncated(
                f"the stream begins at version {state.first_seq}, not after {after}; the feed may still have the events",
                code="log_truncated",
                extra={"first_version": state.first_seq},
            )
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=after + 1,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=INACTIVE_SECONDS,
            mem_storage=True,
        )
        subject = f"{SUBJECTS}.>" if self._tenant_id is None else f"{SUBJECTS}.{self._tenant_id}.>"
        return await stream.pull_subscribe(subject, stream=self._stream, config=config)

    async def _skips(self, stream: JetStreamContext, first: int, after: int) -> bool:
        """Whether the stream's first event replaces the versions between `after` and itself, which a restore has lost."""
        message = await stream.get_msg(self._stream, first)
        event = event_of_cloud(message.data or b"", first, chained_by_tenant=False)
        return event.event_type == VERSIONS_SKIPPED and event.prev_version is not None and event.prev_version <= after

    async def _fetch(self, subscription: JetStreamContext.PullSubscription) -> list[Event]:
        """What comes within the time for it."""
        try:
            messages = await subscription.fetch(FETCH_MAX, timeout=FETCH_SECONDS)
        except (TimeoutError, nats.errors.TimeoutError):
            return []
        return [self._event(message) for message in messages]

    def _event(self, message: Msg) -> Event:
        version = message.metadata.sequence.stream
        return event_of_cloud(message.data, version, chained_by_tenant=self._tenant_id is not None)


async def _leave(subscription: JetStreamContext.PullSubscription | None) -> None:
    if subscription is None:
        return
    try:
        await subscription.unsubscribe()
    except _PASSING as error:
        log.debug("left late: %s", error)
