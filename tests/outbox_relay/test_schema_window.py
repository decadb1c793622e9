"""The relay begins only on a schema that serves it."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from berth.process.schema_window import SCHEMA_REVISION
from outbox_relay import postgres


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("select", None),
        ("update function_generation set oldest_process = '9999'", "serves processes of 9999 and later"),
        ("update alembic_version set version_num = '0047'", f"is 0047 and this Berth needs {SCHEMA_REVISION}"),
        ("delete from alembic_version", "has no schema yet"),
        ("drop table alembic_version", "has no schema yet"),
    ],
)
def test_a_schema_that_does_not_serve_the_relay_is_reported(database_url: str, statement: str, why: str | None) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(statement.encode())
    found = asyncio.run(postgres.probe(postgres.bounded_address(database_url, "test")))
    assert found is None if why is None else why in (found or "")
