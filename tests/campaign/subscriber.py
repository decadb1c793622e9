"""The campaign's own reader of the stream: from the first message on, whatever happens to NATS."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from datetime import datetime

import nats
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from tests.campaign.history import Delivery, History
from tests.support.waiting import pause

STREAM = "BERTH_LOG"
LOST = (NatsError, OSError, TimeoutError)
BATCH_MAX = 200
CONNECT_PACE_SECONDS = 0.2
OVERLAP = 10
"""After a lost connection so many messages are read again on purpose: a consumer must be able to absorb them."""


class Subscriber:
    """Notes every delivery in the history. `cursor` is the last sequence seen."""

    def __init__(self, nats_url: str, history: History) -> None:
        self._nats_url = nats_url
        self._history = history
        self.cursor = 0

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            with suppress(*LOST):
                await self._session()
            await pause(CONNECT_PACE_SECONDS)

    async def _session(self) -> None:
        async def quiet(_: Exception) -> None:
            """Sessions end by an exception; the library would print it as well."""

        client = await asyncio.wait_for(
            nats.connect(
                self._nats_url.split(","), allow_reconnect=False, connect_timeout=2, ping_interval=1, error_cb=quiet
            ),
            5,
        )
        try:
            stream = client.jetstream(timeout=2)
            config = ConsumerConfig(
                ack_policy=AckPolicy.NONE,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=max(1, self.cursor + 1 - OVERLAP),
                inactive_threshold=60,
            )
            subscription = await stream.pull_subscribe("", stream=STREAM, config=config)
            while not client.is_closed:
                with suppress(TimeoutError):
                    for message in await subscription.fetch(BATCH_MAX, timeout=1):
                        self._note(message)
        finally:
            with suppress(*LOST):
                await asyncio.wait_for(client.close(), 1)

    def _note(self, message: Msg) -> None:
        document = json.loads(message.data)
        delivery = Delivery(
            sequence=message.metadata.sequence.stream,
            version=int(document["version"]),
            event_id=document["id"],
            type=document["type"].removeprefix("berth."),
            operation_key=document.get("operationkey"),
            data=document.get("data") or {},
            at=datetime.fromisoformat(document["time"]),
            tenant_id=document.get("tenantid"),
            prev_version=int(document["prevversion"]),
            told=time.monotonic(),
        )
        self._history.deliveries.append(delivery)
        self.cursor = max(self.cursor, delivery.sequence)
