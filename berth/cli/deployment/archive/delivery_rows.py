"""SQL of the archive for deliveries of webhooks: which may leave, their lines, and their deletion.

A line has neither the event's payload nor anything of the receiver's answer but its status, and no key. While the archive is used
for deliveries, sweepers leave them to it (table `archive_uses`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from berth.cli.deployment.archive.crash_points import CrashPoint
from berth.cli.deployment.archive.manifests import Kind, Line
from berth.cli.deployment.archive.rows import LOCK_SECONDS, Connection, Sealed, read_bounded
from berth.process.crash_points import reach

_USE = """
insert into archive_uses (kind) values (%s) on conflict (kind) do nothing
"""
_NOTE_RUN = "update archive_uses set last_run = clock_timestamp() where kind = %s"
_END_USE = "delete from archive_uses where kind = %s"
# Those of a deleted webhook are due at once: the webhook leaves with the last of them.
_FIND = """
select d.webhook_id, d.number from webhook_deliveries d join webhooks w on w.id = d.webhook_id
where (d.webhook_id, d.number) > (%(webhook)s, %(number)s) and d.ended_at is not null
  and (d.ended_at < clock_timestamp() - make_interval(days => %(days)s) or w.state = 'deleted'
       or d.number <= w.numbered - %(kept)s)
order by d.webhook_id, d.number limit %(limit)s
"""
_LINES = """
select key, jsonb_build_object(
    'delivery', key, 'webhook_id', d.webhook_id, 'number', d.number,
    'tenant_id', w.tenant_id, 'version', d.version, 'event_id', d.event_id, 'event_type', d.event_type,
    'allocation_id', (select l.payload ->> 'allocation_id' from log l where l.version = d.version),
    'state', d.state, 'attempts', d.attempts, 'response_status', d.response_status, 'error', d.error, 'history', d.history,
    'duration_ms', d.duration_ms, 'created_at', d.created_at, 'attempted_at', d.attempted_at, 'ended_at', d.ended_at)::text
from webhook_deliveries d join webhooks w on w.id = d.webhook_id
cross join lateral concat(d.webhook_id, '.', lpad(d.number::text, 19, '0')) key
where (d.webhook_id, d.number) in (select * from unnest(%(webhooks)s::uuid[], %(numbers)s::bigint[]))
order by d.webhook_id, d.number
"""
_LOCK_ROWS = """
select d.webhook_id, d.number from webhook_deliveries d
where (d.webhook_id, d.number) in (select * from unnest(%(webhooks)s::uuid[], %(numbers)s::bigint[])) and d.ended_at is not null
for update of d skip locked
"""
_DELETE = """
delete from webhook_deliveries d
where (d.webhook_id, d.number) in (select * from unnest(%(webhooks)s::uuid[], %(numbers)s::bigint[]))
"""
_KNOWN = """
select count(*) from webhook_deliveries d
where (d.webhook_id, d.number) in (select * from unnest(%(webhooks)s::uuid[], %(numbers)s::bigint[]))
"""
_RECORD = """
insert into archive_segments (sequence, kind, manifest_sha256, destination, deleted, name) values (%s, %s, %s, %s, %s, %s)
"""
_AUDIT = """
insert into audit (principal_kind, principal_id, action, subject, detail)
values ('system', 'berth archive run', 'webhook_deliveries.archive', 'archive/' || %(sequence)s,
        jsonb_build_object('manifest_sha256', %(manifest)s::text, 'deleted', %(deleted)s::integer))
"""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A delivery: its webhook, and its number there."""

    webhook: UUID
    number: int

    @property
    def key(self) -> str:
        """How a line names it; keys are in the order of places."""
        return f"{self.webhook}.{self.number:019d}"


KEPT_MAX = 100_000
"""Deliveries of a webhook that stay whatever the retention is, the newest ones: a tenant's rows are bounded (P13)."""
FIRST_PLACE = Place(UUID(int=0), 0)


def place_of(key: str) -> Place:
    """The place that a key names. Raises ValueError for any other text."""
    webhook, _, number = key.partition(".")
    return Place(UUID(webhook), int(number))


def use_archive(connection: Connection, days: int) -> None:
    """From the commit on sweepers leave deliveries to the archive; `days` 0: they delete them again."""
    connection.execute(_USE if days else _END_USE, (Kind.DELIVERIES,))


def note_run(connection: Connection) -> None:
    """A run has archived everything that was due."""
    connection.execute(_NOTE_RUN, (Kind.DELIVERIES,))


def find_deliveries(connection: Connection, after: Place, days: int, limit: int) -> list[Place]:
    """At most `limit` ended deliveries behind `after` that are due.

    Those that ended more than `days` days ago, those beyond the newest `KEPT_MAX` of a webhook, and those of a deleted one.
    """
    values = {"webhook": after.webhook, "number": after.number, "days": days, "limit": limit, "kept": KEPT_MAX}
    return [Place(*row) for row in connection.execute(_FIND, values).fetchall()]


def read_delivery_lines(connection: Connection, places: Sequence[Place], bytes_max: int) -> list[Line]:
    """The first of these deliveries, up to that many bytes, at least one; empty if none is left."""
    return read_bounded(connection, _LINES, _values(places), bytes_max, rows_at_once=500)


def delete_sealed_deliveries(connection: Connection, sealed: Sealed) -> int:
    """Delete, in one transaction, the deliveries that are as they were sealed; return how many.

    One that is locked, or sent again since, stays and comes into a later segment. Raises `psycopg.Error`.
    """
    with connection.transaction():
        connection.execute("select set_config('lock_timeout', %s, true)", (f"{LOCK_SECONDS}s",))
        connection.execute("set local timezone = 'UTC'")
        sealed_places = [place_of(key) for key in sealed.digests]
        locked = [Place(*row) for row in connection.execute(_LOCK_ROWS, _values(sealed_places)).fetchall()]
        now = connection.execute(_LINES, _values(locked)).fetchall()
        same = [place_of(key) for key, text in now if Line(key, text).sha256 == sealed.digests[key]]
        record = (
            sealed.sequence, Kind.DELIVERIES, sealed.manifest_sha256, sealed.destination, len(same), sealed.segment.name,
        )  # fmt: skip
        connection.execute(_RECORD, record)
        connection.execute(_DELETE, _values(same))
        values = {"sequence": sealed.sequence, "manifest": sealed.manifest_sha256, "deleted": len(same)}
        connection.execute(_AUDIT, values)
        reach(CrashPoint.BEFORE_DELETE_COMMIT)
    reach(CrashPoint.AFTER_DELETE_COMMIT)
    return len(same)


def count_known_deliveries(connection: Connection, sealed: Sealed) -> int:
    """How many of the segment's deliveries this database has."""
    row = connection.execute(_KNOWN, _values([place_of(key) for key in sealed.digests])).fetchone()
    return 0 if row is None else int(row[0])


def _values(places: Sequence[Place]) -> dict[str, list[UUID] | list[int]]:
    return {"webhooks": [place.webhook for place in places], "numbers": [place.number for place in places]}
