"""A tenant's user of NATS reads the events of that tenant, through one consumer, and can do nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import nats
import nats.errors
import orjson
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, StreamConfig
from nats.js.errors import Error as JetStreamError

from berth.local.nats_users import NATS_USERS, TENANTS_FILE, NatsUsers
from berth.local.servers import LocalNats, free_port
from berth.process.nats_connections import nats_options
from outbox_relay.messages import STREAM_SUBJECTS
from tests.deploy.deployment import DEPLOY

STREAM = "BERTH_LOG"
OURS, OTHER = (uuid.UUID(int=number, version=4) for number in (1, 2))
"""The same in each process that collects the tests."""
NEXT = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}"
REFUSED = (nats.errors.Error, JetStreamError, TimeoutError)
Found = TypeVar("Found")


def add_tenant(secrets: Path, tenant: object) -> subprocess.CompletedProcess[str]:
    """Run deploy/add-nats-tenant."""
    command = [str(DEPLOY / "add-nats-tenant"), str(secrets), str(tenant)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class Tenants:
    """NATS with the log and the users of two tenants."""

    def __init__(self, directory: Path) -> None:
        secrets = directory / "secrets"
        secrets.mkdir()
        (secrets / "nats_tenants.conf").touch()
        printed = {tenant: add_tenant(secrets, tenant).stdout.strip() for tenant in (OURS, OTHER)}
        users = NatsUsers({user: f"{number}-{user}-password" for number, user in enumerate(NATS_USERS)})
        self.server = LocalNats(directory / "nats", free_port(), free_port(), users)
        self.server.directory.mkdir()
        (secrets / "nats_tenants.conf").rename(self.server.directory / TENANTS_FILE)
        self.server.start()
        here = f"127.0.0.1:{self.server.port}"
        self.urls = {
            tenant: url.replace("tls://", "nats://").replace("nats:4222", here) for tenant, url in printed.items()
        }

    def make_consumer(self, tenant: uuid.UUID) -> None:
        """Run deploy/nats_tenant_consumer.py."""
        command = [sys.executable, str(DEPLOY / "nats_tenant_consumer.py"), str(tenant)]
        subprocess.run(command, env={"BERTH_NATS_URL": self.server.url_of("operator")}, check=True, timeout=60)

    def play(self, url: str, act: Callable[[Client], Awaitable[Found]], **options: Any) -> Found:
        """What `act` returns over a connection with this address."""

        async def ignore(_: Exception) -> None:
            """A refused subject is reported beside the call that it fails."""

        async def run() -> Found:
            client = await nats.connect(**nats_options(url, "test", **options), allow_reconnect=False, error_cb=ignore)
            try:
                return await act(client)
            finally:
                await client.close()

        return asyncio.run(run())

    def relay(self, act: Callable[[Client], Awaitable[Found]]) -> Found:
        """As the relay."""
        return self.play(self.server.url_of("relay"), act, inbox="relay")

    def ours(self, act: Callable[[Client], Awaitable[Found]]) -> Found:
        """As the user of our tenant."""
        return self.play(self.urls[OURS], act)

    def messages(self) -> int:
        """How many events the stream holds."""

        async def count(relay: Client) -> int:
            return int((await relay.jetstream().stream_info(STREAM)).state.messages)

        return self.relay(count)


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    """Both tenants have events and a consumer."""
    tenants = Tenants(tmp_path_factory.mktemp("tenants"))

    async def make_log(relay: Client) -> None:
        stream = relay.jetstream()
        await stream.add_stream(StreamConfig(name=STREAM, subjects=list(STREAM_SUBJECTS), allow_direct=True))
        for number in range(3):
            for owner in (OURS, OTHER, "operator"):
                await stream.publish(f"berth.events.{owner}.allocation.updated", f"{owner} {number}".encode())

    tenants.relay(make_log)
    for tenant in (OURS, OTHER, OURS):
        tenants.make_consumer(tenant)
    yield tenants
    tenants.server.stop()


async def read(client: Client, seconds: float = 30.0) -> list[bytes]:
    """The next events of our consumer, acknowledged."""
    events = await client.jetstream().pull_subscribe_bind(f"tenant-{OURS}", STREAM)
    messages = await events.fetch(10, timeout=seconds)
    for message in messages:
        await message.ack_sync(timeout=30)
    return [message.data for message in messages]


def test_a_tenant_reads_its_events_and_no_others(tenants: Tenants) -> None:
    assert tenants.ours(read) == [f"{OURS} {number}".encode() for number in range(3)]
    with pytest.raises(REFUSED):
        tenants.ours(partial(read, seconds=1))


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        (f"{NEXT}.tenant-{OTHER}", {"batch": 1}),
        (f"{NEXT}.berth-worker", {"batch": 1}),
        (f"$JS.API.CONSUMER.INFO.{STREAM}.tenant-{OTHER}", {}),
        (f"$JS.API.STREAM.MSG.GET.{STREAM}", {"seq": 2}),
        (f"$JS.API.DIRECT.GET.{STREAM}", {"seq": 2}),
        (f"$JS.API.STREAM.INFO.{STREAM}", {}),
        (f"$JS.API.STREAM.DELETE.{STREAM}", {}),
        (f"$JS.API.CONSUMER.DELETE.{STREAM}.tenant-{OURS}", {}),
        (
            f"$JS.API.CONSUMER.CREATE.{STREAM}.tenant-{OURS}.berth.events.>",
            {"stream_name": STREAM, "config": {"durable_name": f"tenant-{OURS}", "filter_subject": "berth.events.>"}},
        ),
        ("berth.events.forged", {}),
    ],
)
def test_a_tenant_reaches_nothing_else(tenants: Tenants, subject: str, body: dict[str, Any]) -> None:
    before = tenants.messages()

    async def attack(client: Client) -> None:
        answer = await client.request(subject, orjson.dumps(body), timeout=0.5)
        if orjson.loads(answer.data)["error"]["description"] == "JetStream not enabled for account":
            raise nats.errors.Error("the tenant's account has no stream")

    with pytest.raises(REFUSED):
        tenants.ours(attack)
    assert tenants.messages() == before


@pytest.mark.parametrize("subject", [">", "berth.events.>", "_INBOX.>", "_INBOX_relay.>", "_INBOX_worker.>"])
def test_a_tenant_receives_no_event_of_others(tenants: Tenants, subject: str) -> None:
    async def listen(client: Client) -> bool:
        heard = await client.subscribe(subject)
        await client.flush()
        await asyncio.to_thread(tenants.messages)  # the relay asks, and is answered in its inbox
        try:
            await heard.next_msg(timeout=0.3)
        except nats.errors.TimeoutError:
            return False
        return True

    assert not tenants.ours(listen)


def test_no_reply_to_a_tenant_becomes_an_event(tenants: Tenants) -> None:
    async def publish(relay: Client) -> None:
        await relay.jetstream().publish(f"berth.events.{OURS}.allocation.updated", b"one")

    tenants.relay(publish)
    before = tenants.messages()

    async def inject(client: Client) -> bytes:
        injected = f"berth.events.{OTHER}.balance.depleted"
        heard = await client.subscribe(injected)
        await client.publish(f"{NEXT}.tenant-{OURS}", b'{"batch": 1}', reply=injected)
        return (await heard.next_msg(timeout=30)).data

    assert tenants.ours(inject) == b"one", "the reply is delivered in the tenant's account"
    assert tenants.messages() == before


def test_a_consumer_keeps_its_filter(tenants: Tenants) -> None:
    async def look(operator: Client) -> ConsumerConfig:
        config: ConsumerConfig = (await operator.jetstream().consumer_info(STREAM, f"tenant-{OURS}")).config
        return config

    config = tenants.play(tenants.server.url_of("operator"), look)
    assert (config.filter_subject, config.filter_subjects) == (f"berth.events.{OURS}.>", None)


def test_a_tenant_gets_one_user_and_only_by_its_id(tmp_path: Path) -> None:
    (tmp_path / "nats_tenants.conf").touch()
    assert add_tenant(tmp_path, OURS).returncode == 0
    written = (tmp_path / "nats_tenants.conf").read_text()
    assert add_tenant(tmp_path, OURS).returncode == 1
    for wrong in (
        "*",
        ">",
        "",
        "../x",
        f"{OURS}.>",
        f"{OURS} }}",
        f"{OURS}\n}}",
        str(OURS).upper().replace("-", "_"),
    ):
        assert add_tenant(tmp_path, wrong).returncode != 0
    assert (tmp_path / "nats_tenants.conf").read_text() == written
