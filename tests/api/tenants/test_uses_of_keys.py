"""When a key was last used: noted in memory by requests, and written at most once a minute for each key."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from berth.local.servers import LocalPostgres
from orchestrator.database.transactions import connect_database
from orchestrator.http.audited.key_uses import KEYS_MAX, KeyUses
from tests.api.calling import Caller, insert_admin_key, new_tenant, problem
from tests.api.processes import public_process
from tests.databases import copied_database

_ROW = "select xmin::text, last_used_at from api_keys where id = %s"


@pytest.fixture
def url(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    """A database for this test alone."""
    with copied_database(postgres_server, migrated_template) as copied:
        yield copied


def test_a_process_that_stops_writes_the_uses_of_its_keys(url: str, tmp_path: Path) -> None:
    with public_process(url, tmp_path / "first") as http:
        admin = Caller(http, insert_admin_key(url))
        tenant = new_tenant(admin)
        unused = admin.make("/admin/api-keys", {"name": "unused", "role": "viewer"})["id"]
        began = datetime.now(UTC)
        mine = tenant.get("/me")["principal_id"]
        problem(Caller(http, "berth_aaaaaaaa_unknown").call("GET", "/me"), 401, "unauthenticated")
        assert {key["last_used_at"] for key in admin.every("/admin/api-keys", 500)} == {None}
    with public_process(url, tmp_path / "second") as http:
        found = {key["id"]: key["last_used_at"] for key in Caller(http, admin.key).every("/admin/api-keys", 500)}
        (own,) = Caller(http, tenant.key).get("/api-keys")["items"]
    assert found.pop(unused) is None
    assert own["last_used_at"] == found[mine]
    assert all(began - timedelta(seconds=60) < datetime.fromisoformat(at) < datetime.now(UTC) for at in found.values())
    assert len(found) == 2


def _database(url: str) -> Any:
    return connect_database(
        url, pool_size=1, reserve_size=1, lock_timeout_seconds=1, transaction_timeout_seconds=5, application="test"
    )


def _key(connection: psycopg.Connection[Any], url: str) -> uuid.UUID:
    insert_admin_key(url)
    row = connection.execute("select id from api_keys order by id desc limit 1").fetchone()
    assert row is not None
    return uuid.UUID(str(row[0]))


def test_a_key_costs_at_most_one_write_per_minute(url: str) -> None:
    async def run(connection: psycopg.Connection[Any], key: uuid.UUID) -> None:
        database = _database(url)
        first, second = KeyUses(database), KeyUses(database)
        try:
            for _ in range(3):
                first.note(key)
                second.note(key)
            assert (await first.flush(), await first.flush(), await second.flush()) == (1, 0, 0)
            stored = connection.execute(_ROW, (key,)).fetchone()
            first.note(key)
            assert await first.flush() == 0
            assert connection.execute(_ROW, (key,)).fetchone() == stored, "the row was not written"
            connection.execute(
                "update api_keys set last_used_at = last_used_at - interval '61 s' where id = %s", (key,)
            )
            first.note(key)
            assert await first.flush() == 1
        finally:
            await database.close()

    with psycopg.connect(url, autocommit=True) as connection:
        asyncio.run(run(connection, _key(connection, url)))
        assert connection.execute("select count(*) from api_keys where last_used_at is not null").fetchone() == (1,)


def test_a_key_that_is_changed_at_this_moment_holds_nothing_up(url: str) -> None:
    async def run(key: uuid.UUID, other: uuid.UUID) -> int:
        database = _database(url)
        uses = KeyUses(database)
        try:
            uses.note(key)
            uses.note(other)
            return await uses.flush()
        finally:
            await database.close()

    with psycopg.connect(url, autocommit=True) as connection, psycopg.connect(url) as rival:
        key, other = _key(connection, url), _key(connection, url)
        rival.execute("select from api_keys where id = %s for update", (key,))
        assert asyncio.run(run(key, other)) == 1
        found = connection.execute("select id from api_keys where last_used_at is not null").fetchall()
        assert found == [(other,)]


def test_noted_keys_are_bounded_and_unknown_ones_write_nothing(url: str) -> None:
    async def run(key: uuid.UUID) -> tuple[int, int]:
        database = _database(url)
        uses = KeyUses(database)
        try:
            for _ in range(KEYS_MAX):
                uses.note(uuid.uuid4())
            uses.note(key)
            beyond = await uses.flush()
            uses.note(key)
            return beyond, await uses.flush()
        finally:
            await database.close()

    with psycopg.connect(url, autocommit=True) as connection:
        assert asyncio.run(run(_key(connection, url))) == (0, 1)
