"""A NATS of the relay's tests' own, because they kill it, and relays that are gone after the test."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import nats
import psycopg
import pytest
from nats.aio.client import Client

from berth.local.servers import LocalNats, free_port
from tests.outbox_relay.relays import STREAM, RelayProcess, asked

StartRelay = Callable[..., RelayProcess]


@pytest.fixture(scope="module")
def own_nats(server_directory: Path) -> Iterator[LocalNats]:
    """A NATS that may be killed."""
    server = LocalNats(server_directory / uuid.uuid4().hex / "nats", free_port(), free_port())
    server.start()
    yield server
    server.stop()


@pytest.fixture
def nats_url(own_nats: LocalNats) -> str:
    """The running `own_nats`, without a stream."""
    if own_nats.process is None:
        own_nats.start()

    async def delete(client: Client) -> None:
        try:
            await client.jetstream().delete_stream(STREAM)
        except nats.js.errors.NotFoundError:
            return

    asked(own_nats.url, delete)
    return own_nats.url


@pytest.fixture
def database(database_url: str) -> Iterator[psycopg.Connection]:
    """A connection to this test's database."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def start_relay(database_url: str, nats_url: str, tmp_path: Path) -> Iterator[StartRelay]:
    """Starts relays; those that still run after the test are killed."""
    relays: list[RelayProcess] = []

    def start(*, ready: bool = True, **settings: str) -> RelayProcess:
        at_database = settings.pop("database_url", database_url)
        at_nats = settings.pop("nats_url", nats_url)
        relay = RelayProcess(at_database, at_nats, tmp_path, **settings)
        relays.append(relay)
        if ready:
            relay.wait_until_ok()
        return relay

    yield start
    for relay in relays:
        relay.kill()
