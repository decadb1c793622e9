"""The gate: a restore that is open in the database keeps every process of Berth from serving.

It is a row, so it survives restarts, and it is a restored server's from the first moment on: nothing else can have closed it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import psycopg
from psycopg.rows import class_row

from berth.cli.endings import USAGE, Refused

SESSIONS_SECONDS_MAX = 10.0
_RESTORES = """
select epoch, begun_at, written_by, leader_id, head_version, last_event_at, raised_at, closed_at, exported_at,
       export_events, without_export
from restores where %(epoch)s::uuid is null or epoch = %(epoch)s order by begun_at desc limit 1
"""
_LEFT = """
select coalesce(array_agg(distinct coalesce(nullif(application_name, ''), 'pid ' || pid)), '{}') from pg_stat_activity
where pid = any (%s) and datname = current_database()
"""

_AWAITED = """
select n.id, n.name, n.online, n.last_seen_at,
       case when n.driver = 'redfish' and n.enrolled_at is null then 'operator' else 'inventory' end as waits_for,
       array(select a.state || ' ' || a.id from allocations a join claims c on c.id = a.claim_id and c.closed_at is null
             where a.node_id = n.id order by a.id) as allocations
from awaited_inventories w join nodes n on n.id = w.node_id where n.state <> 'retired' order by n.name
"""

Connection = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True)
class Restore:
    """A restore, open or closed. `head_version` and `last_event_at`: where the restored log ended.

    `without_export`: why it goes on without an export of what was lost.
    """

    epoch: UUID
    begun_at: datetime
    written_by: str
    leader_id: str
    head_version: int
    last_event_at: datetime | None
    raised_at: datetime | None
    closed_at: datetime | None
    exported_at: datetime | None
    export_events: int | None
    without_export: str | None

    @property
    def is_exported(self) -> bool:
        """Whether the lost interval was exported, or given up for a recorded reason."""
        return self.exported_at is not None or self.without_export is not None


def read_restore(connection: Connection, epoch: UUID | None = None) -> Restore | None:
    """The restore with this epoch, or the newest one; None if there is none. Raises `Refused` for an older schema."""
    try:
        return connection.cursor(row_factory=class_row(Restore)).execute(_RESTORES, {"epoch": epoch}).fetchone()
    except psycopg.errors.UndefinedTable as error:
        raise Refused(
            "the schema of this database is older than this command; run `berth migrate` first", code="schema_too_old"
        ) from error


def begin(connection: Connection) -> tuple[Restore, bool]:
    """Open a restore unless one is open, and end all sessions that were there before; return it, and whether it is new.

    For a connection in autocommit mode, which holds the lock of restores from here on. Raises `Refused` if another command holds
    it, and while sessions remain that the schema's owner may not end: the restore is open then, and a repetition goes on.
    """
    read_restore(connection)
    alone = connection.execute("select pg_try_advisory_lock(hashtext('berth.restore'))").fetchone()
    if alone != (True,):
        raise Refused("another `berth restore` works on this database; wait for its end", code="restore_running")
    row = connection.execute("select epoch, is_new from restore_begin()").fetchone()
    assert row is not None, "the function returns one row"
    epoch, is_new = row
    assert isinstance(epoch, UUID)
    _end_sessions(connection)
    found = read_restore(connection, epoch)
    assert found is not None, "it was just opened, and no restore is deleted"
    return found, bool(is_new)


def _end_sessions(connection: Connection) -> None:
    sessions = connection.execute("select pid, may_end from restore_end_sessions()").fetchall()
    ending = [pid for pid, may_end in sessions if may_end]
    deadline = time.monotonic() + SESSIONS_SECONDS_MAX
    while _left(connection, ending) and time.monotonic() < deadline:
        time.sleep(0.02)
    left = _left(connection, [pid for pid, _ in sessions])
    if left:
        raise Refused(
            f"sessions from before the restore remain and may write: {', '.join(left)}; stop their processes, or grant"
            " pg_signal_backend to the owner of the schema, then repeat the command",
            code="sessions_remain",
        )


def _left(connection: Connection, sessions: list[object]) -> list[str]:
    row = connection.execute(_LEFT, (sessions,)).fetchone()
    assert row is not None, "an aggregate returns one row"
    assert isinstance(row[0], list)
    return row[0]


def waive_export(connection: Connection, epoch: UUID, reason: str) -> bool:
    """Note why the restore goes on without an export; return whether this call did. Raises `Refused` for an empty reason."""
    if not reason.strip():
        raise Refused("--without-export needs a reason, which is recorded", code="usage", exit_code=USAGE)
    row = connection.execute("select restore_waive_export(%s, %s)", (epoch, reason)).fetchone()
    assert row is not None, "the function returns one row"
    return bool(row[0])


def close(connection: Connection, epoch: UUID) -> bool:
    """Close the restore: processes serve from now on. Return whether this call closed it."""
    row = connection.execute("select restore_close(%s)", (epoch,)).fetchone()
    assert row is not None, "the function returns one row"
    return bool(row[0])


@dataclass(frozen=True)
class AwaitedNode:
    """A node whose inventory has not arrived, or is not explained yet. `last_seen_at`: None if it was never seen.

    `waits_for`: `inventory`, or `operator` if it has no agent that could send one. `allocations`: state and id of each on it.
    """

    id: UUID
    name: str
    online: bool
    last_seen_at: datetime | None
    waits_for: str
    allocations: list[str]


def awaited_nodes(connection: Connection) -> list[AwaitedNode]:
    """The nodes whose slots are out of service since a restore, by name."""
    read_restore(connection)
    return connection.cursor(row_factory=class_row(AwaitedNode)).execute(_AWAITED).fetchall()
