"""A log in partitions so small that a test fills them."""

from __future__ import annotations

from typing import Any

import psycopg

CUT = """
do $$
declare
    part regclass;
begin
    perform from log_head for update;
    lock table log in access exclusive mode;
    create temp table kept on commit drop as select * from log;
    for part in select inhrelid::regclass from pg_inherits where inhparent = 'log'::regclass loop
        execute format('drop table %s', part);
    end loop;
    update log_head set partition_versions = VERSIONS;
    for k in (select coalesce(min(version), 0) / VERSIONS from kept) .. (select version / VERSIONS from log_head) loop
        execute format('create table log_from_%s (like log including all)', k * VERSIONS);
        execute format('alter table log attach partition log_from_%s for values from (%s) to (%s)',
                       k * VERSIONS, k * VERSIONS, (k + 1) * VERSIONS);
    end loop;
    perform log_extend((select version from log_head));
    insert into log select * from kept;
end $$
"""


def cut_log(database: psycopg.Connection[Any], versions: int) -> None:
    """From now on each partition holds so many versions; what the log holds stays."""
    database.execute(CUT.replace("VERSIONS", str(versions)).encode())


def append(
    database: psycopg.Connection[Any], number: int, tenant_id: object = None, *, age_seconds: float = 0.0
) -> int:
    """Leave events of this age, give them their versions, and answer the head."""
    database.execute(
        "insert into outbox (event_type, correlation_id, tenant_id, subject, payload, occurred_at) "
        "select 'node.online', uuidv7(), %s, 'things/' || n, jsonb_build_object('n', n), "
        "clock_timestamp() - make_interval(secs => %s) from generate_series(1, %s) n",
        (tenant_id, age_seconds, number),
    )
    while database.execute("select log_advance(1000)").fetchone() != (0,):
        continue
    return head(database)


def head(database: psycopg.Connection[Any]) -> int:
    """The newest version."""
    return number_of(database, "select version from log_head")


def first(database: psycopg.Connection[Any]) -> int:
    """The lowest version kept, which must be the log's oldest."""
    row = database.execute("select f.version, coalesce((select min(version) from log), 1) from log_first f").fetchone()
    assert row is not None
    assert row[0] == row[1]
    return int(row[0])


def truncate(database: psycopg.Connection[Any], *, age_seconds: float = 0.0, versions_min: int = 1) -> str:
    """Run one truncation; return its outcome."""
    row = database.execute("select outcome from log_truncate(%s, %s)", (age_seconds, versions_min)).fetchone()
    assert row is not None
    return str(row[0])


def published(database: psycopg.Connection[Any]) -> None:
    """As when NATS was given everything, and everything was metered."""
    database.execute("update consumer_positions set version = (select version from log_head)")


def forget_others(database: psycopg.Connection[Any]) -> None:
    """Only the relay needs the log."""
    database.execute("delete from consumer_positions where consumer <> 'berth-relay'")


def number_of(database: psycopg.Connection[Any], query: str, *parameters: object) -> int:
    """The one number that a query answers."""
    row = database.execute(query.encode(), parameters).fetchone()
    assert row is not None
    return int(row[0])
