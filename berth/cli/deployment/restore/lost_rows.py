"""What the restored database says of events of the lost interval, and what it is to remember of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg.types.json import Jsonb

from berth.cli.deployment.restore.gate import Connection
from berth.cli.deployment.restore.lost_events import Lost
from berth.cli.deployment.restore.lost_kinds import ADOPTED, End, end_of
from berth.cli.endings import Refused

# Committed before the moment, and published after it: they are in the restored outbox, and are published again.
_KEPT = """
select event_id from outbox where event_id = any (%(ids)s::uuid[])
union select event_id from log where event_id = any (%(ids)s::uuid[]) and version >= %(first)s
"""
_NOTE_ENDS = "select kind, subject_id from restore_note_ends(%s, %s)"


def kept_events(connection: Connection, lost: Sequence[Lost], first: int) -> set[str]:
    """The ids of those events that the restored database has: they were committed before the moment.

    `first`: where log and stream parted. The log may have given such events other versions from there on.
    """
    rows = connection.execute(_KEPT, {"ids": [event.event_id for event in lost], "first": first})
    return {str(event_id) for (event_id,) in rows}


def note_ends(connection: Connection, epoch: UUID, lost: Sequence[Lost]) -> set[End]:
    """Note the ends and revocations among these events; return those that are replayed, as their objects have not ended here."""
    named = [
        (event, end)
        for event in lost
        if (end := end_of(event.event_type, event.subject, event.data, event.event_id)) is not None
    ]
    if not named:
        return set()
    ends = [
        {
            "kind": end.kind,
            "subject_id": str(end.subject_id),
            "version": event.version,
            "ended_at": event.occurred_at,
            "detail": event.data if end.kind in ADOPTED else None,
        }
        for event, end in named
    ]
    rows = connection.execute(_NOTE_ENDS, (epoch, Jsonb(ends))).fetchall()
    return {End(str(kind), UUID(str(subject_id))) for kind, subject_id in rows}


def note_export(connection: Connection, epoch: UUID, events: int, sha256: bytes) -> None:
    """Note that the export is complete. Raises `Refused` if the log has grown since the restore began."""
    if connection.execute("select restore_note_export(%s, %s, %s)", (epoch, events, sha256)).fetchone() != (True,):
        raise Refused(
            "the log has grown since the restore began, so the stream may have been made anew; what was exported before stays",
            code="stream_rebuilt",
        )


@dataclass(frozen=True)
class Replays:
    """How many ends and revocations of a restore are left, and how many are done."""

    left: int
    done: int


def read_replays(connection: Connection, epoch: UUID) -> Replays:
    """The ends and revocations that the newest export found."""
    row = connection.execute(
        "select count(*) filter (where done_at is null), count(*) filter (where done_at is not null)"
        " from restore_replays where epoch = %s",
        (epoch,),
    ).fetchone()
    assert row is not None, "an aggregate returns one row"
    left, done = row
    assert isinstance(left, int)
    assert isinstance(done, int)
    return Replays(left, done)
