"""A connection pooler in an address is named and refused by every process, whether it passes startup options on or not."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

import migrations
from berth.local.servers import LocalPostgres, free_port
from berth.process.database_connections import AnsweringConnection
from berth.process.poolers import PoolerRefused
from outbox_relay.problems import ServerUnavailable
from outbox_relay.reading import LogReader
from tests.berth.commands import environment
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
KEY_DATA = re.compile(rb"K\x00\x00\x00\x0c.{4}", re.DOTALL)
"""BackendKeyData (PostgreSQL's protocol 3.0): the process that serves the session, to which a cancellation is sent."""
REFUSED = "is a connection pooler, not PostgreSQL"


class Pooler:
    """Passes every byte on, but names another process of the server than the one that serves the session."""

    def __init__(self, server_port: int) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._server_port = server_port
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more."""
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                for source, sink, answers in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass, args=(source, sink, answers), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(KEY_DATA.sub(b"K\x00\x00\x00\x0c\x12\x34\x56\x78", data) if answers else data)
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def pooled(url: str) -> Iterator[str]:
    """The address of a database behind a pooler."""
    port = psycopg.conninfo.conninfo_to_dict(url)["port"]
    pooler = Pooler(int(str(port)))
    try:
        yield url.replace(f":{port}", f":{pooler.port}")
    finally:
        pooler.close()


def test_a_connection_to_the_server_itself_is_taken(database_url: str) -> None:
    async def scene() -> bool:
        connection = await AnsweringConnection.connect(database_url, autocommit=True)
        try:
            return await connection.is_alive()
        finally:
            await connection.close()

    assert asyncio.run(scene())


def test_a_connection_to_a_pooler_is_refused(database_url: str) -> None:
    with pooled(database_url) as url:
        with psycopg.connect(url) as connection:
            assert connection.execute("select 1").fetchone() == (1,), "the pooler serves"
        with pytest.raises(PoolerRefused, match=REFUSED):
            asyncio.run(AnsweringConnection.connect(url, autocommit=True))


async def read_log(url: str) -> None:
    """As the relay does."""
    async with LogReader.connected(url):
        pass


def test_the_relay_names_it_and_the_migration_changes_nothing(database_url: str) -> None:
    with pooled(database_url) as url:
        with pytest.raises(ServerUnavailable, match=REFUSED):
            asyncio.run(read_log(url))
        with pytest.raises(migrations.SchemaProblem, match=REFUSED):
            migrations.upgrade(url)


def sentence(module: str, url: str, *arguments: str) -> str:
    """What a process says when it ends, which it does before the time that it may wait for a database is over."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], env=environment(BERTH_DATABASE_URL=url, BERTH_STARTUP_SECONDS_MAX="600"),
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    return done.stderr


def test_an_api_process_ends_at_once_with_one_sentence(database_url: str) -> None:
    with pooled(database_url) as url:
        said = sentence("orchestrator", url, "--listen", "public")
    assert REFUSED in said
    assert said.count("\n") == 1


@pytest.mark.full
@pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="needs Debian's pgbouncer")
@pytest.mark.parametrize("ignored", ["", "ignore_startup_parameters = options, extra_float_digits"])
def test_pgbouncer_is_refused(
    postgres_server: LocalPostgres, database_url: str, data_directory: Path, ignored: str
) -> None:
    address = psycopg.conninfo.conninfo_to_dict(database_url)
    port = free_port()
    data_directory.mkdir(mode=0o755)
    users, settings = data_directory / "users.txt", data_directory / "pgbouncer.ini"
    users.write_text(f'"{address["user"]}" "{address["password"]}"\n')
    settings.write_text(
        f"[databases]\n* = host=127.0.0.1 port={address['port']}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
        f"auth_type = plain\nauth_file = {users}\npool_mode = transaction\nunix_socket_dir =\n{ignored}\n"
    )
    user = ["-u", "daemon"] if os.geteuid() == 0 else []
    with subprocess.Popen(["pgbouncer", "-q", *user, str(settings)]) as pgbouncer:
        try:
            wait_for(lambda: _listens(port), "PgBouncer listens")
            said = sentence(
                "orchestrator", database_url.replace(f":{address['port']}", f":{port}"), "--listen", "public"
            )
        finally:
            pgbouncer.kill()
    assert REFUSED in said


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False
