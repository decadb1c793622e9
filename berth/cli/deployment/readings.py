"""What `berth doctor` reads in Postgres: versions, lag, fleet. Only reads."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import LiteralString

import psycopg
from psycopg.rows import class_row

CONNECT_SECONDS = 5


@dataclass(frozen=True)
class DatabaseReadings:
    """What a database says about itself before its schema is known. `seconds_ahead`: its clock against this machine's."""

    server_version: int
    synchronous_commit: str
    fsync: str
    max_connections: int
    seconds_ahead: float


@dataclass(frozen=True)
class LogHolder:
    """What delays truncation of the log: a policy (with its tenant, or of the operators), a consumer, dead letters."""

    kind: str
    name: str
    tenant_id: str | None
    needs_from: int
    since: datetime


@dataclass(frozen=True)
class LogReadings:
    """The stored versions, what delays truncation (the oldest need first), and since when."""

    first_version: int
    head_version: int
    blocked_since: datetime | None
    holders: tuple[LogHolder, ...] = ()


@dataclass(frozen=True)
class BillingReadings:
    """Lag of metering behind the log; prepaid and used-up balances, and how late their evaluation is."""

    lag_versions: int
    lag_seconds: float
    prepaid: int
    depleted: int
    late_seconds: float


@dataclass(frozen=True)
class WebhookReadings:
    """How webhooks are doing; `oldest_due_seconds`: how long the oldest message has been due."""

    enabled: int
    failing: int
    disabled: int
    pending: int
    oldest_due_seconds: float


@dataclass(frozen=True)
class FleetReadings:
    """How the control plane is doing, by its tables. `overdue` counts what is a minute past what it waits for."""

    outbox_events: int
    outbox_oldest_seconds: float
    head_version: int
    nodes: int
    offline_nodes: tuple[str, ...]
    conflicted_nodes: tuple[str, ...]
    node_certificate_hours_least: float | None
    blocked_slots: int
    orphaned_slots: int
    orphaned_nodes: tuple[str, ...]
    overdue: dict[str, int]
    dead_letters: int
    log: LogReadings
    billing: BillingReadings
    webhooks: WebhookReadings
    certificate_request_oldest_seconds: float


@dataclass(frozen=True)
class Backlog:
    """What the log has beyond a version: its newest, and how long ago the first one beyond was written."""

    head_version: int
    oldest_seconds: float


@dataclass(frozen=True)
class SecurityReadings:
    """The role of this connection, and the names of nodes and tenants without the usual protection."""

    role: str
    superuser: bool
    sandbox_nodes: tuple[str, ...]
    unlimited_tenants: tuple[str, ...]


def read_database(database_url: str) -> DatabaseReadings:
    """Version, clock, and settings that durability rests on. Raises `psycopg.OperationalError` if it cannot be reached."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        row = connection.execute(
            "select current_setting('synchronous_commit'), current_setting('fsync'), "
            "current_setting('max_connections')::integer"
        ).fetchone()
        assert row is not None
        committing, fsync, connections = row
        ahead = _seconds_ahead(connection)
        return DatabaseReadings(connection.info.server_version, committing, fsync, connections, ahead)


def _seconds_ahead(connection: psycopg.Connection[tuple[object, ...]]) -> float:
    before = time.time()
    row = connection.execute("select extract(epoch from clock_timestamp())::float8").fetchone()
    assert row is not None
    return float(str(row[0])) - (before + time.time()) / 2


def read_backlog(database_url: str, version: int) -> Backlog | None:
    """What the log has beyond `version`; None if it cannot be read, which others say better."""
    try:
        with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
            row = connection.execute(
                "select (select version from log_head), coalesce((select extract(epoch from clock_timestamp() - occurred_at)"
                "::float8 from log where version = %s), 0)",
                (version + 1,),
            ).fetchone()
    except psycopg.Error:
        return None
    return None if row is None else Backlog(*row)


_OVERDUE: dict[str, LiteralString] = {
    "allocations": "select count(*) from allocations where waits_until < clock_timestamp() - interval '1 minute'",
    "cleanups": "select count(*) from claims where waits_until < clock_timestamp() - interval '1 minute'",
    "orphans": "select count(*) from node_orphans where waits_until < clock_timestamp() - interval '1 minute'",
    "reservations": "select count(*) from reservations where waits_until < clock_timestamp() - interval '1 minute'",
    "tasks": "select count(*) from node_tasks "
    "where state in ('queued', 'dispatched') and expires_at < clock_timestamp() - interval '1 minute'",
}


def read_fleet(database_url: str) -> FleetReadings:
    """Lag of the relay, nodes that are away, slots that wait for a person, certificates that end soonest, what is overdue.

    Needs the schema.
    """
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        row = connection.execute(
            "select (select count(*) from outbox), "
            "(select coalesce(extract(epoch from clock_timestamp() - min(occurred_at)), 0)::float8 from outbox), "
            "(select version from log_head), (select count(*) from nodes where state <> 'retired'), "
            "(select coalesce(array_agg(name::text order by name), '{}') from nodes "
            " where not online and state not in ('registered', 'retired')), "
            "(select coalesce(array_agg(name::text order by name), '{}') from nodes where identity_conflict_at is not null), "
            "(select extract(epoch from min(newest) - clock_timestamp())::float8 / 3600 from "
            " (select max(c.not_after) as newest from node_certificates c join nodes n on n.id = c.node_id "
            "  where n.online and c.revoked_at is null group by c.node_id) per_node), "
            "(select coalesce(sum(upper(part) - lower(part)), 0)::bigint from claims c, unnest(c.units) part "
            " where c.waits_for in ('operator', 'force_release')), "
            "(select coalesce(sum(cardinality(slots)), 0)::bigint from node_orphans where state <> 'destroyed'), "
            "(select coalesce(array_agg(name::text order by name), '{}') from nodes "
            " where id in (select node_id from node_orphans where state <> 'destroyed')), "
            "(select count(*) from dead_letters where state = 'dead'), "
            "(select coalesce(extract(epoch from clock_timestamp() - min(requested_at)), 0)::float8 "
            " from certificate_requests where serial is null and refusal is null)"
        ).fetchone()
        assert row is not None
        overdue = {what: _count(connection, statement) for what, statement in _OVERDUE.items()}
        outbox, oldest, head, nodes, offline, conflicted, hours, blocked, orphaned, at, dead, unsigned = row
        return FleetReadings(
            outbox,
            oldest,
            head,
            nodes,
            tuple(offline),
            tuple(conflicted),
            hours,
            blocked,
            orphaned,
            tuple(at),
            overdue,
            dead,
            _read_log(connection),
            _read_billing(connection),
            _read_webhooks(connection),
            unsigned,
        )


def read_security(database_url: str) -> SecurityReadings:
    """Names in order. Needs the schema."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        row = connection.execute(
            "select current_user::text, (select rolsuper from pg_roles where rolname = current_user), "
            "(select coalesce(array_agg(name::text order by name), '{}') from nodes "
            " where driver in ('sandbox', 'noop') and state <> 'retired'), "
            "(select coalesce(array_agg(t.name::text order by t.name), '{}') from tenants t "
            " join tenant_quotas q on q.tenant_id = t.id where q.gpus_limit is null and t.state <> 'deleted')"
        ).fetchone()
    assert row is not None
    role, superuser, nodes, tenants = row
    return SecurityReadings(role, superuser, tuple(nodes), tuple(tenants))


def _read_log(connection: psycopg.Connection[tuple[object, ...]]) -> LogReadings:
    holders = connection.cursor(row_factory=class_row(LogHolder)).execute(
        "select c.kind, c.name, c.tenant_id::text, c.needs_from, c.since from log_cursors c, log_truncation t "
        "where c.needs_from < t.blocked_below order by c.needs_from, c.kind, c.name limit 10"
    )
    found = holders.fetchall()
    standing = connection.cursor(row_factory=class_row(LogReadings)).execute(
        "select f.version as first_version, h.version as head_version, t.blocked_since "
        "from log_first f, log_head h, log_truncation t"
    )
    return replace(standing.fetchone() or LogReadings(1, 0, None), holders=tuple(found))


def _read_billing(connection: psycopg.Connection[tuple[object, ...]]) -> BillingReadings:
    found = (
        connection.cursor(row_factory=class_row(BillingReadings))
        .execute(
            "select h.version - coalesce(c.version, 0) as lag_versions, "
            "coalesce((select extract(epoch from clock_timestamp() - l.occurred_at) from log l "
            " where l.version > coalesce(c.version, 0) order by l.version limit 1), 0)::float8 as lag_seconds, "
            "(select count(*) from balances where prepaid) as prepaid, "
            "(select count(*) from tenants where depleted_at is not null) as depleted, "
            "(select greatest(0, coalesce(extract(epoch from clock_timestamp() - min(look_at)), 0))::float8 from balances "
            " where look_at is not null) as late_seconds "
            "from log_head h left join consumer_positions c on c.consumer = 'metering'"
        )
        .fetchone()
    )
    return found or BillingReadings(0, 0.0, 0, 0, 0.0)


def _read_webhooks(connection: psycopg.Connection[tuple[object, ...]]) -> WebhookReadings:
    found = connection.cursor(row_factory=class_row(WebhookReadings)).execute(
        "select count(*) filter (where state = 'enabled') as enabled, "
        "count(*) filter (where state = 'enabled' and failing_since is not null) as failing, "
        "count(*) filter (where state = 'disabled' and disabled_reason <> 'requested') as disabled, "
        "(select count(*) from webhook_deliveries where state = 'pending') as pending, "
        "(select coalesce(max(extract(epoch from clock_timestamp() - next_attempt_at)), 0)::float8 from webhook_deliveries "
        " where state = 'pending' and next_attempt_at < statement_timestamp()) as oldest_due_seconds from webhooks"
    )
    return found.fetchone() or WebhookReadings(0, 0, 0, 0, 0.0)


def _count(connection: psycopg.Connection[tuple[object, ...]], statement: LiteralString) -> int:
    found = connection.execute(statement).fetchone()
    assert found is not None
    return int(str(found[0]))
