"""The user of NATS that publishes the audit can neither write events nor remove what it published; its readers write nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import RePublish, StreamConfig, StreamSource
from nats.js.errors import Error as JetStreamError

from berth.local.nats_users import NatsUser
from berth.local.servers import LocalNats
from berth.process.nats_connections import nats_options
from tests.audit_stream.jetstream import STREAM

LOG = "BERTH_LOG"
EVENT = "berth.events.operator.balance.depleted"
INBOXES: dict[NatsUser, str] = {"audit": "audit", "relay": "relay"}
REFUSED = (nats.errors.Error, JetStreamError, TimeoutError)
Found = TypeVar("Found")


def as_user(server: LocalNats, user: NatsUser, act: Callable[[Client], Awaitable[Found]]) -> Found:
    """What `act` returns over a connection of this user."""

    async def ignore(_: Exception) -> None:
        """A refused subject is reported beside the call that it fails."""

    async def run() -> Found:
        options = nats_options(server.url_of(user), "test", inbox=INBOXES.get(user))
        client = await nats.connect(**options, allow_reconnect=False, error_cb=ignore)
        try:
            return await act(client)
        finally:
            await client.close()

    return asyncio.run(run())


def number_of(server: LocalNats, user: NatsUser, stream: str) -> int:
    async def count(client: Client) -> int:
        return (await client.jetstream().stream_info(stream)).state.messages

    return as_user(server, user, count)


@pytest.fixture
def log(nats_with_users: LocalNats) -> LocalNats:
    """NATS with the stream of the log, empty."""

    async def make(relay: Client) -> None:
        await relay.jetstream().add_stream(StreamConfig(name=LOG, subjects=["berth.events.>"]))

    as_user(nats_with_users, "relay", make)
    return nats_with_users


async def make_audit(client: Client) -> None:
    await client.jetstream().add_stream(StreamConfig(name=STREAM, subjects=["berth.audit"]))
    await client.jetstream().publish("berth.audit", b"{}")


def test_a_publisher_of_the_audit_writes_no_event(log: LocalNats) -> None:
    async def publish(client: Client) -> None:
        await client.publish(EVENT, b"{}")
        await client.flush()

    async def republish(client: Client) -> None:
        config = StreamConfig(name=STREAM, subjects=["berth.audit"], republish=RePublish(src="berth.audit", dest=EVENT))
        await client.jetstream().add_stream(config)
        await client.jetstream().publish("berth.audit", b"{}")

    as_user(log, "audit", publish)
    as_user(log, "audit", republish)
    assert number_of(log, "auditor", STREAM) == 1
    assert number_of(log, "relay", LOG) == 0


@pytest.mark.full
def test_a_publisher_of_the_audit_reads_no_event(log: LocalNats) -> None:
    async def leave_event(relay: Client) -> None:
        await relay.jetstream().publish(EVENT, b"{}")

    async def copy(client: Client) -> None:
        await client.jetstream().add_stream(StreamConfig(name=STREAM, sources=[StreamSource(name=LOG)]))

    async def read(client: Client) -> None:
        await client.jetstream().stream_info(LOG)

    as_user(log, "relay", leave_event)
    as_user(log, "audit", copy)
    with pytest.raises(REFUSED):
        as_user(log, "audit", read)
    assert number_of(log, "auditor", STREAM) == 0


@pytest.mark.parametrize("user", ["audit", "auditor"])
@pytest.mark.parametrize("call", ["STREAM.DELETE", "STREAM.PURGE", "STREAM.UPDATE", "STREAM.MSG.DELETE"])
def test_nothing_that_was_published_can_be_removed(nats_with_users: LocalNats, user: NatsUser, call: str) -> None:
    as_user(nats_with_users, "audit", make_audit)

    async def remove(client: Client) -> None:
        await client.request(f"$JS.API.{call}.{STREAM}", b'{"seq": 1}', timeout=0.5)

    with pytest.raises(REFUSED):
        as_user(nats_with_users, user, remove)
    assert number_of(nats_with_users, "auditor", STREAM) == 1


def test_a_reader_writes_no_row_of_the_audit(nats_with_users: LocalNats) -> None:
    """JetStream publishes a reply to the subject that the caller names, whatever the caller may publish."""
    as_user(nats_with_users, "audit", make_audit)

    async def inject(client: Client) -> None:
        await client.publish("berth.audit", b"{}")
        await client.publish(f"$JS.API.STREAM.INFO.{STREAM}", b"", reply="berth.audit")
        await client.flush()
        # The server takes the calls of a connection in order.
        await client.jetstream().stream_info(STREAM)

    as_user(nats_with_users, "auditor", inject)
    assert number_of(nats_with_users, "auditor", STREAM) == 1
