"""Sessions that tests use again have nothing of their last use."""

from __future__ import annotations

import psycopg
import pytest

from tests.kept_sessions import session

LEFT = (
    "set role pg_read_all_data", "set search_path to nowhere", "set session_replication_role = replica",
    "select pg_advisory_lock(1)", "create temporary table kept_rows (n int)", "prepare kept as select 1",
)  # fmt: skip
FOUND = """
select current_user = session_user, current_setting('search_path') <> 'nowhere',
       current_setting('session_replication_role') = 'origin',
       (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()) = 0,
       to_regclass('pg_temp.kept_rows') is null, (select count(*) from pg_prepared_statements) = 0
"""


@pytest.mark.parametrize("number", range(len(LEFT)))
def test_nothing_is_left_of_the_last_use(database_url: str, number: int) -> None:
    first = session(database_url)
    first.execute(LEFT[number].encode())
    first.close()
    with session(database_url) as second:
        assert second is first, "the session is used again"
        row = second.execute(FOUND.encode()).fetchone()
    assert row is not None
    assert row[number] is True


def test_a_session_with_an_open_transaction_is_ended(database_url: str) -> None:
    first = session(database_url)
    first.execute("begin")
    first.close()
    assert first.closed
    with session(database_url) as second:
        assert second is not first


def test_a_session_that_is_closed_twice_has_one_next_user(database_url: str) -> None:
    first = session(database_url)
    first.close()
    first.close()
    with session(database_url) as one, session(database_url) as other:
        assert one is not other


def test_a_session_that_the_server_has_ended_is_not_used_again(database_url: str) -> None:
    first = session(database_url)
    process = first.info.backend_pid
    first.close()
    with psycopg.connect(database_url, autocommit=True) as killer:
        killer.execute("select pg_terminate_backend(%s, 5000)", (process,))
    with session(database_url) as second:
        assert second.info.backend_pid != process
