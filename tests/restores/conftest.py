"""A NATS without a stream, a connection to the database, and relays that end with the test."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from berth.local.servers import LocalNats, free_port
from tests.outbox_relay.relays import RelayProcess

NO_NATS = "this test has no NATS"
"""The reason for a restore without an export."""
StartRelay = Callable[..., RelayProcess]


@pytest.fixture
def nats_url(server_directory: Path) -> Iterator[str]:
    """The address of a NATS of the test's own."""
    server = LocalNats(server_directory / uuid.uuid4().hex / "nats", free_port(), free_port())
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def database(database_url: str) -> Iterator[psycopg.Connection]:
    """A connection to this test's database."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def start_relay(database_url: str, nats_url: str, tmp_path: Path) -> Iterator[StartRelay]:
    """Starts relays; those that still run after the test are killed."""
    relays: list[RelayProcess] = []

    def start(*, ready: bool = True) -> RelayProcess:
        relay = RelayProcess(database_url, nats_url, tmp_path)
        relays.append(relay)
        if ready:
            relay.wait_until_ok()
        return relay

    yield start
    for relay in relays:
        relay.kill()
