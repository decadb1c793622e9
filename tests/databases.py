"""Databases of tests: copies of a migrated one, gone when the test is over."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from berth.local.servers import LocalPostgres
from migrations.roles import Role
from tests.kept_sessions import end_sessions


def as_role(url: str, role: Role) -> str:
    """The address of a test's database as the role of a process, which owns nothing, instead of the superuser.

    An address with another user stays as it is.
    """
    return url.replace("//postgres:", f"//{role}:", 1)


def as_roles(url: str) -> dict[Role, str]:
    """The address of a test's database as each role."""
    return {role: as_role(url, role) for role in Role}


_connections: dict[str, psycopg.Connection[Any]] = {}
_one_by_one = threading.Lock()


def _on_server(server: LocalPostgres, statement: str) -> None:
    """Carry out a statement in this process's session on the server: a session costs as much as to drop a database."""
    address = server.url("postgres")
    with _one_by_one:
        if address not in _connections or _connections[address].closed:
            _connections[address] = psycopg.connect(address, autocommit=True)
        _connections[address].execute(statement.encode())


def leave(server: LocalPostgres) -> None:
    """End this process's session on the server."""
    with _one_by_one:
        if found := _connections.pop(server.url("postgres"), None):
            found.close()


@contextmanager
def empty_database(server: LocalPostgres) -> Iterator[str]:
    """The address of a database without a schema, dropped at the end even while it is in use."""
    name = f"t_{uuid.uuid4().hex}"
    _on_server(server, f"create database {name}")
    yield server.url(name)
    end_sessions(name)
    _on_server(server, f"drop database {name} with (force)")


@contextmanager
def copied_database(server: LocalPostgres, template: str) -> Iterator[str]:
    """The address of a copy of the database `template`, which must have no connections but kept ones meanwhile. At the end
    the copy is dropped, even while it is in use.
    """
    name = f"t_{uuid.uuid4().hex}"
    end_sessions(template)
    # Copying files costs a fraction of writing each page to the log as well, which is the default.
    _on_server(server, f"create database {name} template {template} strategy file_copy")
    yield server.url(name)
    end_sessions(name)
    _on_server(server, f"drop database {name} with (force)")
