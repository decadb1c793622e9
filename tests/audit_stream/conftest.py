"""The database, NATS with its users, and certificates of a syslog receiver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from berth.local.nats_users import NATS_USERS, NatsUsers
from berth.local.servers import LocalNats, free_port


@pytest.fixture
def database(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection as the owner."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def nats_with_users(data_directory: Path) -> Iterator[LocalNats]:
    """NATS as it is deployed, with nothing stored."""
    users = NatsUsers({user: f"{number}-{user}-password" for number, user in enumerate(NATS_USERS)})
    data_directory.mkdir(parents=True)
    server = LocalNats(data_directory / "nats", free_port(), free_port(), users)
    server.start()
    yield server
    server.stop()
