"""SQL of the archive: which allocations may leave, all rows that belong to one, and their deletion.

What belongs to an allocation: its row, claims, timeline, tasks, absence and wipe certificate. What stays: metering, ledger,
audit, orphans and reservations; webhook deliveries have segments apart, the log and operations other retentions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID

import psycopg

from berth.cli.deployment.archive.crash_points import CrashPoint
from berth.cli.deployment.archive.manifests import Line, Segment
from berth.process.crash_points import reach

Connection = psycopg.Connection[Any]
Query = Sequence[object] | Mapping[str, object]
"""Parameters of a query."""

LOCK_SECONDS = 2
_LOCK = "select pg_try_advisory_lock(hashtextextended('berth archive', 0))"
_UNLOCK = "select pg_advisory_unlock(hashtextextended('berth archive', 0))"
# An id is younger than its allocation's request, so the primary key bounds the search by time.
_FIND = """
select a.id from allocations a join claims c on c.id = a.claim_id
where a.id > %(after)s and a.id < uuidv7(make_interval(days => -%(days)s)) and a.state in ('released', 'failed')
  and greatest(coalesce(a.released_at, a.failed_at), c.closed_at) < clock_timestamp() - make_interval(days => %(days)s)
  and not exists (select from claims o where o.owner_id = a.id and o.owner_kind = 'allocation' and o.closed_at is null)
  and not exists (select from node_tasks t where t.allocation_id = a.id and t.state in ('queued', 'dispatched'))
  and not exists (select from node_orphans o
                  where o.node_id = a.node_id and o.allocation_id = a.id and o.state <> 'destroyed')
  and not exists (select from reservations r where r.id = a.reservation_id and r.ended_at is null)
  and (a.active_at is null
       or exists (select from metering_intervals i where i.allocation_id = a.id and i.ended_at is not null))
order by a.id limit %(limit)s
"""
_LINES = """
select a.id, jsonb_build_object('allocation_id', a.id, 'rows', jsonb_build_object(
    'allocations', jsonb_build_array(to_jsonb(a)),
    'claims', coalesce((select jsonb_agg(to_jsonb(c) order by c.id) from claims c
                        where c.owner_id = a.id and c.owner_kind = 'allocation'), '[]'),
    'allocation_timeline', coalesce((select jsonb_agg(to_jsonb(t) order by t.id) from allocation_timeline t
                                     where t.allocation_id = a.id), '[]'),
    'node_tasks', coalesce((select jsonb_agg(to_jsonb(t) order by t.fence, t.id) from node_tasks t
                            where t.allocation_id = a.id), '[]'),
    'allocation_absences', coalesce((select jsonb_agg(to_jsonb(b)) from allocation_absences b
                                     where b.allocation_id = a.id), '[]'),
    'wipe_certificates', coalesce((select jsonb_agg(to_jsonb(w) || jsonb_build_object('key_set', k.envelope))
                                   from wipe_certificates w left join wipe_key_sets k on k.sha256 = w.key_set_sha256
                                   where w.allocation_id = a.id), '[]')))::text
from allocations a where a.id = any (%s) order by a.id
"""
_LOCK_ROWS = "select id from allocations where id = any (%s) for update skip locked"
_DELETE = (
    "delete from allocation_absences where allocation_id = any (%s)",
    "delete from node_tasks where allocation_id = any (%s)",
    "delete from wipe_certificates where allocation_id = any (%s)",
    "delete from allocation_timeline where allocation_id = any (%s)",
    "delete from claims where owner_id = any (%s) and owner_kind = 'allocation'",
    "delete from allocations where id = any (%s)",
)
_RECORD = (
    "insert into archive_segments (sequence, manifest_sha256, destination, deleted, name) values (%s, %s, %s, %s, %s)"
)
_REMEMBER = """
insert into archived_allocations (allocation_id, segment, tenant_id)
select id, %(segment)s, tenant_id from allocations where id = any (%(ids)s)
"""
_AUDIT = """
insert into audit (principal_kind, principal_id, action, subject, detail)
values ('system', 'berth archive run', 'allocations.archive', 'archive/' || %(sequence)s,
        jsonb_build_object('manifest_sha256', %(manifest)s::text, 'deleted', %(deleted)s::integer))
"""


@dataclass(frozen=True, slots=True)
class Head:
    """The newest segment whose rows were deleted; sequence 0: none."""

    sequence: int
    manifest_sha256: str | None


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed segment, whose rows may be deleted. `digests`: except of the audit, that of each line by its key."""

    sequence: int
    manifest_sha256: str
    destination: str
    segment: Segment
    digests: Mapping[str, str]


@contextmanager
def archive_locked(connection: Connection) -> Iterator[bool]:
    """Hold the lock of the only run; yields False if another run holds it.

    It is given back before the connection is closed: the server notices that later, and refused the next run meanwhile.
    """
    row = connection.execute(_LOCK).fetchone()
    held = row is not None and bool(row[0])
    try:
        yield held
    finally:
        if held:
            with suppress(psycopg.Error):
                connection.execute(_UNLOCK)


def require_session(connection: Connection) -> None:
    """Raise `psycopg.OperationalError` if the session has ended, and with it the lock of the archive."""
    connection.execute("select")


def read_head(connection: Connection) -> Head:
    """The newest segment that the database knows."""
    newest = "select sequence, manifest_sha256 from archive_segments order by sequence desc limit 1"
    row = connection.execute(newest).fetchone()
    return Head(0, None) if row is None else Head(int(row[0]), str(row[1]))


def read_moment(connection: Connection) -> tuple[str, str]:
    """The database's time (RFC 3339, UTC) and its schema revision."""
    row = connection.execute(
        "select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), version_num from alembic_version"
    ).fetchone()
    assert row is not None, "an upgraded database has one revision"
    return str(row[0]), str(row[1])


def find_allocations(connection: Connection, after: UUID, days: int, limit: int) -> list[UUID]:
    """At most `limit` allocations behind `after` that ended and were cleaned up more than `days` days ago, by id."""
    values = {"after": after, "days": days, "limit": limit}
    return [row[0] for row in connection.execute(_FIND, values).fetchall()]


def read_lines(connection: Connection, ids: Sequence[UUID], bytes_max: int) -> list[Line]:
    """The first of these allocations, with everything that belongs to them, up to that many bytes, at least one."""
    return read_bounded(connection, _LINES, (list(ids),), bytes_max, rows_at_once=50)


def read_bounded(
    connection: Connection, query: LiteralString, values: Query, bytes_max: int, *, rows_at_once: int
) -> list[Line]:
    """The first rows (key, text) of a query, of one moment, up to that many bytes, at least one; empty if there is none."""
    lines: list[Line] = []
    size = 0
    with connection.transaction(), connection.cursor(name="archive_lines") as cursor:
        connection.execute("set transaction isolation level repeatable read, read only")
        connection.execute("set local timezone = 'UTC'")
        cursor.itersize = rows_at_once
        for key, text in cursor.execute(query, values):
            size += len(text)
            if lines and size > bytes_max:
                break
            lines.append(Line(str(key), text))
    return lines


def delete_sealed(connection: Connection, sealed: Sealed) -> int:
    """Delete, in one transaction, what is in the segment exactly as it is in the database; return how many allocations.

    A locked allocation, or one that has changed since, stays and comes into a later segment. Raises `psycopg.Error`.
    """
    with connection.transaction():
        connection.execute("select set_config('lock_timeout', %s, true)", (f"{LOCK_SECONDS}s",))
        connection.execute("set local timezone = 'UTC'")
        locked = [row[0] for row in connection.execute(_LOCK_ROWS, (ids_of(sealed),)).fetchall()]
        now = connection.execute(_LINES, (locked,)).fetchall()
        same = [found for found, text in now if Line(str(found), text).sha256 == sealed.digests[str(found)]]
        record = (sealed.sequence, sealed.manifest_sha256, sealed.destination, len(same), sealed.segment.name)
        connection.execute(_RECORD, record)
        connection.execute(_REMEMBER, {"segment": sealed.sequence, "ids": same})
        for statement in _DELETE:
            connection.execute(statement, (same,))
        values = {"sequence": sealed.sequence, "manifest": sealed.manifest_sha256, "deleted": len(same)}
        connection.execute(_AUDIT, values)
        reach(CrashPoint.BEFORE_DELETE_COMMIT)
    reach(CrashPoint.AFTER_DELETE_COMMIT)
    return len(same)


def count_known(connection: Connection, sealed: Sealed) -> int:
    """How many of the segment's allocations this database has."""
    row = connection.execute("select count(*) from allocations where id = any (%s)", (ids_of(sealed),)).fetchone()
    return 0 if row is None else int(row[0])


def ids_of(sealed: Sealed) -> list[UUID]:
    """The allocations of a segment."""
    return [UUID(key) for key in sealed.digests]
