"""Each user of NATS may do what its process needs, and nothing else."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, StreamConfig
from nats.js.errors import Error as JetStreamError

from berth.local.nats_users import NATS_USERS, ROLES_FILE, NatsUser, NatsUsers
from berth.local.servers import LocalNats, free_port
from berth.process.nats_connections import nats_options
from outbox_relay.messages import STREAM_SUBJECTS
from outbox_relay.settings import Settings as RelaySettings
from worker.audit_stream.settings import AuditStreamSettings
from worker.settings import Settings as WorkerSettings

STREAM = "BERTH_LOG"
CONSUMER = "berth-worker"
TENANT_EVENT = "berth.events.0198c1f4-11aa-7d3e-8a4b-5b1c9f0e2d77.allocation.released"
INBOXES: dict[NatsUser, str] = {"relay": "relay", "worker": "worker"}
REFUSED = (nats.errors.Error, JetStreamError, TimeoutError)
Found = TypeVar("Found")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNats]:
    """NATS with its users, the stream with one event, and the worker's consumer."""
    users = NatsUsers({user: f"{number}-{user}-password" for number, user in enumerate(NATS_USERS)})
    server = LocalNats(tmp_path_factory.mktemp("roles") / "nats", free_port(), free_port(), users)
    server.start()

    async def make_stream(relay: Client) -> None:
        stream = relay.jetstream()
        await stream.add_stream(StreamConfig(name=STREAM, subjects=list(STREAM_SUBJECTS), allow_direct=True))
        await stream.publish(TENANT_EVENT, b"{}")

    async def make_consumer(worker: Client) -> None:
        config = ConsumerConfig(durable_name=CONSUMER, filter_subjects=["berth.events.*.provisioning.>", TENANT_EVENT])
        await worker.jetstream().add_consumer(STREAM, config)

    as_user(server, "relay", make_stream)
    as_user(server, "worker", make_consumer)
    yield server
    server.stop()


def as_user(server: LocalNats, user: NatsUser, act: Callable[[Client], Awaitable[Found]]) -> Found:
    """What `act` returns over a connection of this user."""

    async def ignore(_: Exception) -> None:
        """A refused subject is reported beside the call that it fails."""

    async def run() -> Found:
        options = nats_options(server.url_of(user), f"test-{user}", inbox=INBOXES.get(user))
        client = await nats.connect(**options, allow_reconnect=False, error_cb=ignore)
        try:
            return await act(client)
        finally:
            await client.close()

    return asyncio.run(run())


def messages_of(server: LocalNats) -> int:
    """How many events the stream holds."""

    async def count(relay: Client) -> int:
        return int((await relay.jetstream().stream_info(STREAM)).state.messages)

    return as_user(server, "relay", count)


@pytest.mark.parametrize("user", ["worker", "reader"])
def test_only_relay_and_operators_write_events(server: LocalNats, user: NatsUser) -> None:
    before = messages_of(server)

    async def forge(client: Client) -> None:
        await client.publish(TENANT_EVENT, b'{"forged": true}')
        await client.flush()
        await client.jetstream(timeout=0.3).publish(TENANT_EVENT, b'{"forged": true}')

    with pytest.raises(REFUSED):
        as_user(server, user, forge)
    assert messages_of(server) == before


INJECTED = "berth.events.0198c1f4-ffff-7d3e-8a4b-5b1c9f0e2d77.balance.depleted"
CALLS: list[tuple[NatsUser, str, bytes]] = [
    ("worker", f"STREAM.INFO.{STREAM}", b""),
    ("worker", f"CONSUMER.INFO.{STREAM}.{CONSUMER}", b""),
    ("worker", f"CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}", b'{"batch": 1, "no_wait": true}'),
    ("reader", "INFO", b""),
    ("reader", f"STREAM.MSG.GET.{STREAM}", b'{"seq": 1}'),
    ("reader", f"DIRECT.GET.{STREAM}", b'{"seq": 1}'),
    ("reader", f"CONSUMER.LIST.{STREAM}", b""),
]


@pytest.mark.parametrize(("user", "call", "body"), CALLS)
def test_no_reply_becomes_an_event(server: LocalNats, user: NatsUser, call: str, body: bytes) -> None:
    """JetStream publishes a reply to the subject that the caller names, whatever the caller may publish."""
    before = messages_of(server)

    async def inject(client: Client) -> None:
        await client.publish(f"$JS.API.{call}", body, reply=INJECTED)
        await client.flush()
        answered = INBOXES.get(user, "")
        inbox = f"_INBOX{answered and '_' + answered}.after"
        heard = await client.subscribe(inbox)
        await client.publish(f"$JS.API.STREAM.INFO.{STREAM}", b"", reply=inbox)
        await heard.next_msg(timeout=30)  # the server takes the calls of a connection in order

    as_user(server, user, inject)
    assert messages_of(server) == before


def test_no_acknowledgement_becomes_an_event(server: LocalNats) -> None:
    as_user(server, "relay", publish_one)
    before = messages_of(server)

    async def inject(worker: Client) -> None:
        subscription = await worker.jetstream(timeout=30).pull_subscribe_bind(CONSUMER, STREAM)
        (message,) = await subscription.fetch(1, timeout=30)
        await worker.publish(message.reply, b"+WPI", reply=INJECTED)
        await worker.publish(message.reply, b"+NXT", reply=INJECTED)
        await message.ack_sync(timeout=30)

    as_user(server, "worker", inject)
    assert messages_of(server) == before


def test_the_stream_of_an_earlier_version_is_kept(tmp_path: Path) -> None:
    """Its users were in NATS's account without a name."""
    server = LocalNats(tmp_path / "nats", free_port(), free_port())
    server.start()

    async def leave_event(client: Client) -> None:
        await client.jetstream().add_stream(StreamConfig(name=STREAM, subjects=list(STREAM_SUBJECTS)))
        await client.jetstream().publish(TENANT_EVENT, b"{}")

    as_user(server, "operator", leave_event)
    server.stop()
    users = NatsUsers({user: f"{number}-{user}-password" for number, user in enumerate(NATS_USERS)})
    server = LocalNats(tmp_path / "nats", server.port, server.monitor_port, users)
    server.start()
    try:
        assert messages_of(server) == 1
    finally:
        server.stop()


@pytest.mark.parametrize("user", ["worker", "reader"])
@pytest.mark.parametrize("call", ["STREAM.DELETE", "STREAM.PURGE", "STREAM.UPDATE", "STREAM.SNAPSHOT"])
def test_only_relay_and_operators_change_the_stream(server: LocalNats, user: NatsUser, call: str) -> None:
    before = messages_of(server)

    async def change(client: Client) -> None:
        await client.request(f"$JS.API.{call}.{STREAM}", b"{}", timeout=0.3)

    with pytest.raises(REFUSED):
        as_user(server, user, change)
    assert messages_of(server) == before


async def take_one(client: Client, seconds: float = 30.0) -> str:
    """The subject of the next event of the workers' consumer, acknowledged."""
    subscription = await client.jetstream(timeout=seconds).pull_subscribe_bind(CONSUMER, STREAM)
    (message,) = await subscription.fetch(1, timeout=seconds)
    await message.ack_sync(timeout=seconds)
    return message.subject


async def publish_one(client: Client) -> None:
    """Publish an event of a tenant."""
    await client.jetstream().publish(TENANT_EVENT, b"{}")


def test_the_worker_takes_events_from_its_consumer_and_no_other(server: LocalNats) -> None:
    as_user(server, "relay", publish_one)
    assert as_user(server, "worker", take_one) == TENANT_EVENT

    async def read_all(client: Client) -> None:
        await client.jetstream(timeout=0.3).add_consumer(STREAM, ConsumerConfig(name="another"))

    with pytest.raises(REFUSED):
        as_user(server, "worker", read_all)


def test_a_reader_takes_nothing_from_the_workers(server: LocalNats) -> None:
    as_user(server, "relay", publish_one)
    with pytest.raises(REFUSED):
        as_user(server, "reader", partial(take_one, seconds=0.5))
    assert as_user(server, "worker", take_one) == TENANT_EVENT

    async def delete(client: Client) -> None:
        await client.jetstream(timeout=0.3).delete_consumer(STREAM, CONSUMER)

    with pytest.raises(REFUSED):
        as_user(server, "reader", delete)

    async def look(client: Client) -> str:
        return str((await client.jetstream().consumer_info(STREAM, CONSUMER)).name)

    assert as_user(server, "reader", look) == CONSUMER


def test_a_reader_reads_the_log(server: LocalNats) -> None:
    async def read(client: Client) -> list[str]:
        subscription = await client.jetstream().pull_subscribe("berth.events.>", durable="billing", stream=STREAM)
        return [message.subject for message in await subscription.fetch(1, timeout=30)]

    assert as_user(server, "reader", read) == [TENANT_EVENT]


@pytest.mark.parametrize("inbox", ["_INBOX_relay.>", "_INBOX_worker.>", ">", "berth.events.>"])
def test_a_reader_does_not_hear_what_is_sent_to_others(server: LocalNats, inbox: str) -> None:
    async def listen(reader: Client) -> int:
        heard = await reader.subscribe(inbox)
        await reader.flush()
        await asyncio.to_thread(messages_of, server)  # the relay asks, and is answered in its inbox
        try:
            await heard.next_msg(timeout=0.3)
        except REFUSED:
            return 0
        return 1

    assert as_user(server, "reader", listen) == 0


@pytest.mark.parametrize("credentials", ["", "relay:wrong@", "stranger:0-relay-password@"])
def test_a_caller_without_a_user_is_refused(server: LocalNats, credentials: str) -> None:
    async def connect() -> None:
        await nats.connect(f"nats://{credentials}127.0.0.1:{server.port}", allow_reconnect=False, connect_timeout=2)

    with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
        asyncio.run(connect())


def test_the_roles_name_the_stream_and_the_consumer_of_the_settings() -> None:
    text = ROLES_FILE.read_text()
    assert set(re.findall(r"\$JS\.(?:API\.[A-Z.]+?|ACK)\.(BERTH_[A-Z]+)", text)) == {
        RelaySettings.model_fields["log_stream_name"].default,
        AuditStreamSettings.model_fields["audit_nats_stream"].default,
    }
    assert re.findall(r'AUDIT_MAY \{\s+publish \{ allow: \["([a-z.]+)"', text) == [
        AuditStreamSettings.model_fields["audit_nats_subject"].default
    ]
    assert set(re.findall(r"BERTH_LOG\.(berth-[a-z]+)", text)) == {
        WorkerSettings.model_fields["worker_consumer_name"].default
    }
    assert json.dumps(sorted(NATS_USERS)) == json.dumps(sorted(re.findall(r"\{user: (\w+),", text)))


def test_passwords_are_for_their_owner_alone(tmp_path: Path) -> None:
    NatsUsers(dict.fromkeys(NATS_USERS, "x")).write(tmp_path)
    assert (tmp_path / "nats-passwords.conf").stat().st_mode & 0o777 == 0o600
