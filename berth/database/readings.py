"""What `berth doctor` reads in Postgres: versions, lag, fleet. Only reads."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

CONNECT_SECONDS = 5


@dataclass(frozen=True)
class DatabaseReadings:
    """What a database says about itself before its schema is known."""

    server_version: int
    synchronous_commit: str
    fsync: str
    max_connections: int


@dataclass(frozen=True)
class FleetReadings:
    """How the control plane is doing, by its tables."""

    outbox_events: int
    outbox_oldest_seconds: float
    head_version: int
    nodes: int
    offline_nodes: tuple[str, ...]
    node_certificate_hours_least: float | None
    overdue_allocations: int
    dead_letters: int


def read_database(database_url: str) -> DatabaseReadings:
    """Version and settings that durability rests on. Raises `psycopg.OperationalError` if it cannot be reached."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        row = connection.execute(
            "select current_setting('synchronous_commit'), current_setting('fsync'), "
            "current_setting('max_connections')::integer"
        ).fetchone()
        assert row is not None
        return DatabaseReadings(connection.info.server_version, *row)


def read_fleet(database_url: str) -> FleetReadings:
    """Lag of the relay, nodes that are away, certificates that end soonest. Needs the schema."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        row = connection.execute(
            "select (select count(*) from outbox), "
            "(select coalesce(extract(epoch from clock_timestamp() - min(occurred_at)), 0)::float8 from outbox), "
            "(select version from log_head), (select count(*) from nodes where state <> 'retired'), "
            "(select coalesce(array_agg(name order by name), '{}') from nodes "
            " where not online and state not in ('registered', 'retired')), "
            "(select extract(epoch from min(newest) - clock_timestamp())::float8 / 3600 from "
            " (select max(c.not_after) as newest from node_certificates c join nodes n on n.id = c.node_id "
            "  where n.online and c.revoked_at is null group by c.node_id) per_node), "
            "(select count(*) from allocations where waits_until < clock_timestamp() - interval '1 minute'), "
            "(select count(*) from dead_letters where state = 'dead')"
        ).fetchone()
        assert row is not None
        outbox, oldest, head, nodes, offline, hours, overdue, dead = row
        return FleetReadings(outbox, oldest, head, nodes, tuple(offline), hours, overdue, dead)
