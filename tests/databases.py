"""Databases of tests: copies of a migrated one, gone when the test is over."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from berth.local.servers import LocalPostgres
from migrations.roles import Role


def as_role(url: str, role: Role) -> str:
    """The address of a test's database as the role of a process, which owns nothing, instead of the superuser.

    An address with another user stays as it is.
    """
    return url.replace("//postgres:", f"//{role}:", 1)


def as_roles(url: str) -> dict[Role, str]:
    """The address of a test's database as each role."""
    return {role: as_role(url, role) for role in Role}


@contextmanager
def copied_database(server: LocalPostgres, template: str) -> Iterator[str]:
    """The address of a copy of the database `template`, which must have no connections meanwhile. At the end the copy is
    dropped, even while it is in use.
    """
    name = f"t_{uuid.uuid4().hex}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        # Copying files costs a fraction of writing each page to the log as well, which is the default.
        connection.execute(f"create database {name} template {template} strategy file_copy".encode())
    yield server.url(name)
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"drop database {name} with (force)".encode())
