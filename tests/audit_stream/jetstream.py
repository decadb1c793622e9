"""The stream of the audit on NATS, as the consumers of a SIEM read it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import nats

from berth.local.nats_users import NatsUser
from berth.local.servers import LocalNats
from berth.process.nats_connections import nats_options

STREAM = "BERTH_AUDIT"


def stored(server: LocalNats, user: NatsUser = "auditor") -> list[tuple[str, dict[str, Any]]]:
    """Id and document of every message of the stream, in order, as a SIEM reads them."""

    async def read() -> list[tuple[str, dict[str, Any]]]:
        client = await nats.connect(**nats_options(server.url_of(user), "test"), allow_reconnect=False)
        try:
            jetstream = client.jetstream()
            info = await jetstream.stream_info(STREAM)
            if not info.state.messages:
                return []
            subscription = await jetstream.pull_subscribe("", stream=STREAM, durable="siem")
            found: list[tuple[str, dict[str, Any]]] = []
            while len(found) < info.state.messages:
                for message in await subscription.fetch(100, timeout=5):
                    assert message.headers is not None
                    found.append((message.headers["Nats-Msg-Id"], json.loads(message.data)))
            await jetstream.delete_consumer(STREAM, "siem")
            return found
        finally:
            await client.close()

    return asyncio.run(read())


def sequences(server: LocalNats) -> list[int]:
    """The sequence of every message, in order."""
    return [document["metadata"]["sequence"] for _, document in stored(server)]


def to(server: LocalNats, **more: str) -> dict[str, str]:
    """Settings of a streamer that sends to this server."""
    return {"BERTH_AUDIT_NATS_URL": server.url_of("audit"), **more}
