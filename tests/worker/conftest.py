"""Relay, worker and NATS, started for each test or for a module; Temporal is the session's, with a task queue for
each of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.local.servers import LocalNats, LocalPostgres, LocalTemporal, free_port
from tests.databases import copied_database
from tests.support.worker_processes import Processes


@pytest.fixture
def own_nats(data_directory: Path) -> Iterator[LocalNats]:
    """A NATS that a test may kill."""
    server = LocalNats(data_directory / "nats", free_port(), free_port())
    server.start()
    yield server
    server.stop()


@pytest.fixture
def processes(
    database_url: str, own_nats: LocalNats, temporal_server: LocalTemporal, tmp_path: Path
) -> Iterator[Processes]:
    """Nothing started yet; everything stopped at the end."""
    started = Processes(database_url, own_nats, temporal_server.address, tmp_path)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def at_work(
    postgres_server: LocalPostgres, migrated_template: str, server_directory: Path, temporal_server: LocalTemporal,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Processes]:  # fmt: skip
    """A relay and a worker for those tests of a module that use the default settings and kill nothing."""
    nats = LocalNats(server_directory / uuid.uuid4().hex / "nats", free_port(), free_port())
    nats.start()
    with copied_database(postgres_server, migrated_template) as url:
        started = Processes(url, nats, temporal_server.address, tmp_path_factory.mktemp("at-work"))
        started.start_relay()
        started.start_worker()
        yield started
        started.stop()
    nats.stop()
