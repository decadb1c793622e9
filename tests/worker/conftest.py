"""Relay, worker and a NATS of its own for each test; Temporal is the session's, with a task queue for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.local.servers import LocalNats, LocalTemporal, free_port
from tests.worker.harness import Processes


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
