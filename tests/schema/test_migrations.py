"""Migrations go up and down, leave nothing behind, and refuse what is not theirs with one sentence."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import psycopg
import pytest

import migrations
from berth.local.servers import LocalPostgres

OBJECTS = """
select count(*) from (
    select relname::text from pg_class where relnamespace = 'public'::regnamespace and relname not like 'alembic%'
    union all select proname::text from pg_proc where pronamespace = 'public'::regnamespace
) objects
"""


@pytest.fixture
def empty_url(postgres_server: LocalPostgres) -> Iterator[str]:
    """An empty database."""
    name = f"t_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"create database {name}")
    yield postgres_server.url(name)
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"drop database {name} with (force)")


def objects(url: str) -> int:
    """How many tables, indexes, sequences and functions there are."""
    with psycopg.connect(url) as connection:
        row = connection.execute(OBJECTS).fetchone()
        assert row is not None
        return int(row[0])


def test_up_down_and_up_again_leave_the_same(empty_url: str) -> None:
    assert migrations.current_revision(empty_url) is None
    assert migrations.upgrade(empty_url) == migrations.head_revision()
    made = objects(empty_url)
    assert made > 50
    migrations.downgrade(empty_url, "base")
    assert objects(empty_url) == 0
    migrations.upgrade(empty_url)
    assert objects(empty_url) == made


def test_repeating_it_changes_nothing(empty_url: str) -> None:
    migrations.upgrade(empty_url)
    with psycopg.connect(empty_url) as connection:
        connection.execute("insert into regions values ('eu-1', 'kept')")
    migrations.upgrade(empty_url)
    with psycopg.connect(empty_url) as connection:
        assert connection.execute("select display_name from regions").fetchall() == [("kept",)]


def test_two_at_once_do_it_once(empty_url: str) -> None:
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(migrations.upgrade(empty_url))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [migrations.head_revision()] * 3


def test_a_foreign_database_is_refused_by_name(empty_url: str) -> None:
    with psycopg.connect(empty_url) as connection:
        connection.execute("create table customers ()")
    with pytest.raises(migrations.SchemaProblem, match=r"not Berth's.*customers"):
        migrations.upgrade(empty_url)
    assert objects(empty_url) == 1


def test_a_newer_schema_is_refused(empty_url: str) -> None:
    migrations.upgrade(empty_url)
    with psycopg.connect(empty_url) as connection:
        connection.execute("update alembic_version set version_num = '9999'")
    with pytest.raises(migrations.SchemaProblem, match="newer than this Berth"):
        migrations.upgrade(empty_url)


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(migrations.SchemaProblem, match="cannot connect"):
        migrations.upgrade("postgresql://nobody@127.0.0.1:1/nothing")


def test_operations_from_before_get_their_place_in_the_log(empty_url: str) -> None:
    """Those that nothing has told of, and only those."""
    migrations.upgrade(empty_url, "0004")
    tenant = uuid.uuid4()
    with psycopg.connect(empty_url) as connection:
        connection.execute("insert into tenants (id, name) values (%s, 'one')", (tenant,))
        for scope, key, status, code in (
            (tenant, "untold", 200, "noop"), (tenant, "told", 201, "ok"), (tenant, "refused", 409, "invalid_state"),
            (uuid.uuid4(), "an operator's", 204, "ok"),
        ):  # fmt: skip
            connection.execute(
                "insert into operations (scope, key, fingerprint, status, code, body, retire_after)"
                " values (%s, %s, decode(repeat('00', 32), 'hex'), %s, %s, '', clock_timestamp() + interval '1 hour')",
                (scope, key, status, code),
            )
        connection.execute(
            "insert into outbox (event_type, correlation_id, tenant_id, subject, operation_key, payload)"
            " values ('reservation.held', gen_random_uuid(), %s, 'reservations/1', 'told', '{}')",
            (tenant,),
        )
    migrations.upgrade(empty_url)
    with psycopg.connect(empty_url) as connection:
        told = connection.execute(
            "select operation_key, tenant_id, payload ->> 'code' from outbox where event_type = 'operation.committed' order by id"
        ).fetchall()
    assert told == [("untold", tenant, "noop"), ("an operator's", None, "ok")]
