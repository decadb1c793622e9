"""Fixtures: one server for the tests of backups, and a new backup directory for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from berth.cli.deployment.backup.directory import BackupDirectory
from berth.local.servers import LocalPostgres
from tests.backup.stage import Stage, running_server

PASSWORD = "of-the-backup-role"


@pytest.fixture(scope="session")
def backed_up_server(server_directory: Path) -> Iterator[LocalPostgres]:
    """A server of these tests alone: a backup copies every database of a server."""
    with running_server(server_directory / "backed-up" / "data") as server:
        yield server


@pytest.fixture
def stage(backed_up_server: LocalPostgres, data_directory: Path) -> Iterator[Stage]:
    """The server, with no replication slot, and a backup directory that does not exist yet."""
    url = backed_up_server.make_backup_role(PASSWORD)
    data_directory.mkdir(mode=0o755)
    yield Stage(backed_up_server, url, BackupDirectory(data_directory / "backups"))
    with psycopg.connect(backed_up_server.url(), autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(active_pid) from pg_replication_slots where active")
        connection.execute("truncate markers")


@pytest.fixture(autouse=True)
def without_slots(backed_up_server: LocalPostgres) -> None:
    """No slot of the test before."""
    with psycopg.connect(backed_up_server.url(), autocommit=True) as connection:
        connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")


@pytest.fixture
def place(server_directory: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder that PostgreSQL's user may pass through."""
    folder = server_directory / tmp_path.name
    folder.mkdir(mode=0o711)
    yield folder
    shutil.rmtree(folder)
