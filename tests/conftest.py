"""Fixtures that every test shares: real servers, started once a session; a fresh, migrated database for each test."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import psycopg
import pytest
import structlog
import typer.testing
from hypothesis import settings

import migrations
from berth.local.servers import LocalNats, LocalPostgres, LocalTemporal, free_port, new_password
from migrations.roles import Role
from tests.databases import copied_database, empty_database, leave
from tests.distribution import LongestFirst, import_share, mark_cases_that_are_full, rank
from tests.drivers.guest_users import name_own_users
from tests.forked.starting import forking

MEMORY = "/dev/shm"

# No test asserts how long an example takes: a busy machine would fail it.
settings.register_profile("without a deadline", deadline=None)
settings.load_profile("without a deadline")

# jsonschema would compile 38 grammars for the formats of internationalised addresses, which no schema of Berth has.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# A failure that is logged within a test's own process is not drawn with every local variable, which takes seconds.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)


def pytest_configure(config: pytest.Config) -> None:
    """Before the settings of any agent are read: in a run with guests its processes share one libvirtd."""
    chosen = str(config.option.markexpr)
    if "hardware" in chosen and "not hardware" not in chosen:
        name_own_users()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Without the garbage collector, which would walk every module again and again, then and in the tests."""
    gc.disable()
    try:
        if session.config.args == session.config.getini("testpaths"):
            import_share()
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases that are not quick, before pytest deselects by marks, and put the files that take longest first."""
    mark_cases_that_are_full(items, whole=not any("::" in argument for argument in config.args))
    items.sort(key=lambda item: rank(item.nodeid.partition("::")[0]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LongestFirst | None:
    """For `--dist loadfile`."""
    return LongestFirst(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What clients keep for their user, they keep for this session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-home")))
        yield


@pytest.fixture(scope="session", autouse=True)
def forked_processes() -> Iterator[None]:
    """Processes of ours begin as forks of a process that has their imports."""
    with forking():
        yield


@pytest.fixture(scope="session", autouse=True)
def commands_made_once() -> Iterator[None]:
    """The hundred commands of `berth` are drawn up once, not before each command line that runs in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.testing._get_command))  # type: ignore[attr-defined]
        yield


@pytest.fixture(scope="session")
def server_directory() -> Iterator[Path]:
    """Where this session's servers keep their data.

    Not below pytest's own directory: every pytest that starts closes that one to other users again, and PostgreSQL runs
    as another user when started by root. In memory where there is room: a new database is 300 files and 10 MB.
    """
    place = _memory_with_room()
    with tempfile.TemporaryDirectory(prefix="berth-servers-", dir=place, ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def _memory_with_room() -> str | None:
    """A file system in memory with 8 GiB to spare, unless TMPDIR names another place; None for the usual place."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return None
    found = os.statvfs(MEMORY)
    return MEMORY if found.f_bavail * found.f_frsize >= 8 * 2**30 else None


@pytest.fixture
def data_directory(server_directory: Path) -> Iterator[Path]:
    """A place for the data of a server of this test's own, until its end."""
    place = server_directory / uuid.uuid4().hex
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server(server_directory: Path) -> Iterator[LocalPostgres]:
    """A running PostgreSQL 18. Its commits need not survive a power failure here, so they do not wait for the disk."""
    settings = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "256MB", "autovacuum_naptime": "60s"}
    server = LocalPostgres(server_directory / "postgres", free_port(), new_password(), settings)
    server.start()
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        # Thousands of connections are made, and half of the work of each is to hash the password 4,096 times.
        connection.execute("set scram_iterations = 1")
        connection.execute(f"alter role postgres password '{server.password}'".encode())
        for role in Role:
            connection.execute(f"create role {role} login password '{server.password}'".encode())
    yield server
    leave(server)
    server.stop(signal.SIGQUIT)  # at once: its data is not read again


@pytest.fixture(scope="session")
def migrated_template(postgres_server: LocalPostgres) -> str:
    """The name of a database at the newest revision, to copy from."""
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        connection.execute("create database migrated")
    migrations.upgrade(postgres_server.url("migrated"))
    return "migrated"


@pytest.fixture
def database_url(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    """A database of this test's own, empty and migrated."""
    with copied_database(postgres_server, migrated_template) as url:
        yield url


@pytest.fixture
def empty_url(postgres_server: LocalPostgres) -> Iterator[str]:
    """A database without a schema."""
    with empty_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def nats_server(server_directory: Path) -> Iterator[LocalNats]:
    """A running NATS with JetStream."""
    server = LocalNats(server_directory / "nats", free_port(), free_port())
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def temporal_server(server_directory: Path) -> Iterator[LocalTemporal]:
    """A running Temporal development server."""
    server = LocalTemporal(server_directory / "temporal", free_port(), free_port())
    server.start()
    yield server
    server.stop()
