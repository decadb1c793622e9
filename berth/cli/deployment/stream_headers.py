"""Reads a stretch of a stream by its headers alone: payloads stay where they are, and nothing is acknowledged.

A pull consumer in the server's memory, which goes with the reading, or by itself if the reader is killed. Messages come
only as asked for, so that no number of them costs memory here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

BATCH = 1_000
FETCH_SECONDS_MAX = 10.0
FORGET_SECONDS = 30.0


async def read_event_ids(stream: JetStreamContext, name: str, versions: range) -> AsyncIterator[dict[int, str | None]]:
    """The event ids (`Nats-Msg-Id`) of the messages at `versions`, by sequence, a batch at a time; gone ones are left out.

    Raises what nats-py raises, `TimeoutError` among it.
    """
    wanted = ConsumerConfig(
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=versions.start, ack_policy=AckPolicy.NONE,
        headers_only=True, mem_storage=True, inactive_threshold=FORGET_SECONDS,
    )  # fmt: skip
    subscription = await stream.pull_subscribe("", stream=name, config=wanted)
    consumer = await subscription.consumer_info()
    left = min(consumer.num_pending or 0, len(versions))
    try:
        while left > 0:
            messages = await subscription.fetch(min(left, BATCH), timeout=FETCH_SECONDS_MAX)
            found = {
                message.metadata.sequence.stream: (message.headers or {}).get("Nats-Msg-Id") for message in messages
            }
            left -= len(found)
            yield {version: event_id for version, event_id in found.items() if version < versions.stop}
            if max(found) >= versions.stop - 1:
                return
    finally:
        await subscription.unsubscribe()
        await stream.delete_consumer(name, consumer.name)
