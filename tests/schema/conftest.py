"""A session on the migrated database whose changes last one test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from berth.local.servers import LocalPostgres
from tests.databases import copied_database
from tests.support.rows import FIRST, ignore_triggers

EMPTY = "; ".join(f"delete from {table}" for table in FIRST).encode()
"""In one round trip: a hundred of them take most of a test's time."""


@pytest.fixture(scope="package")
def schema_url(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    """A migrated database that the tests of this folder share."""
    with copied_database(postgres_server, migrated_template) as url:
        yield url


@pytest.fixture(scope="package")
def session(schema_url: str) -> Iterator[psycopg.Connection[Any]]:
    """One session for all tests; `schema` rolls back what each did."""
    with psycopg.connect(schema_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def schema(session: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """Empty tables and no triggers (`ignore_triggers`), in a transaction that is rolled back."""
    with session.transaction(force_rollback=True):
        ignore_triggers(session)
        session.execute(EMPTY)
        yield session
    session.execute("set session_replication_role = origin")
