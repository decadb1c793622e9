"""Each row of the log names the server that sequenced it and the epoch; each history has another epoch."""

from __future__ import annotations

import psycopg

from migrations.roles import Role
from outbox_relay.rebuilding import Order
from tests.databases import as_role
from tests.outbox_relay.relays import require_stream_is_log
from tests.support.rebuilding import leave_log, run

FOREIGN = "1-00000001"


def leader(database: psycopg.Connection) -> str:
    """What this server is."""
    (found,) = database.execute("select postgres_leader_id()").fetchone() or ("",)
    return str(found)


def epoch(database: psycopg.Connection) -> str:
    """The epoch of rows that are sequenced now."""
    (found,) = database.execute("select epoch from log_head").fetchone() or ("",)
    return str(found)


def stamps(database: psycopg.Connection) -> list[str]:
    """The leader ids of the log's rows, in order."""
    return [str(row[0]) for row in database.execute("select leader_id from log order by version").fetchall()]


def lose_and_write_on(database: psycopg.Connection) -> None:
    """As a data directory that was copied after version 6 and started: the same system and timeline, and other events."""
    database.execute("delete from log where version > 6")
    database.execute("delete from log_tenants")
    database.execute(
        "insert into log_tenants select tenant_id, max(version) from log where tenant_id is not null group by 1"
    )
    database.execute("update log_head set version = 6")
    leave_log(database, 9)


def test_a_row_names_the_server_that_sequenced_it_before_that_is_accepted(database: psycopg.Connection) -> None:
    database.execute("update log_head set leader_id = %s", (FOREIGN,))
    leave_log(database, 1)
    assert stamps(database) == [f"{leader(database)}-{epoch(database)}"]


def test_an_accepted_copy_of_a_data_directory_is_another_epoch(
    database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    leave_log(database, 10)
    run(database_url, nats_url)
    first = epoch(database)
    lose_and_write_on(database)
    done = run(as_role(database_url, Role.OPERATOR), nats_url, Order(accept_timeline=True))
    assert done.accepted is not None
    second = epoch(database)
    assert second != first
    here = leader(database)
    assert stamps(database) == [f"{here}-{first}"] * 6 + [f"{here}-{second}"] * 10


def test_an_accepted_timeline_that_lost_nothing_is_another_epoch(
    database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    leave_log(database, 3)
    run(database_url, nats_url)
    first = epoch(database)
    database.execute("update log_head set leader_id = %s", (FOREIGN,))
    run(database_url, nats_url, Order(accept_timeline=True))
    assert epoch(database) != first


def test_a_stream_that_is_made_anew_is_another_epoch_only_where_it_had_other_events(
    database: psycopg.Connection, database_url: str, nats_url: str
) -> None:
    operator = as_role(database_url, Role.OPERATOR)
    leave_log(database, 10)
    first = epoch(database)
    run(operator, nats_url)
    run(operator, nats_url, Order(anew=True))
    assert epoch(database) == first, "the same events under the same versions"
    lose_and_write_on(database)
    run(operator, nats_url, Order(anew=True))
    assert epoch(database) != first
    require_stream_is_log(nats_url, database)
