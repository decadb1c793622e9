"""`berth audit-stream list` and `remove`: which systems receive the audit, how far each has come, and the end of one."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import BaseModel

from berth.cli.endings import Refused
from berth.cli.printing import Column, show_list
from berth.cli.session import Session, command

if TYPE_CHECKING:
    import psycopg

app = typer.Typer(no_args_is_help=True, help="Streams of the audit to NATS and syslog (in the database).")

_READ = """
select s.name, s.sequence, coalesce((select max(c.sequence) from audit_chain c), s.sequence) - s.sequence as unsent,
       coalesce((select greatest(extract(epoch from clock_timestamp() - c.recorded_at), 0) from audit_chain c
                 where c.sequence > s.sequence order by c.sequence limit 1), 0)::float8 as oldest_seconds,
       s.sent_at, coalesce(s.leased_until > clock_timestamp(), false) as sending, s.failing_since,
       coalesce(extract(epoch from clock_timestamp() - s.failing_since), 0)::float8 as failing_seconds, s.last_error
from audit_streams s order by s.name
"""
_REMOVE = """
with gone as (delete from audit_streams where name = %(name)s returning name, sequence)
insert into audit (principal_kind, principal_id, action, subject, detail)
select 'system', 'berth audit-stream remove', 'audit_stream.remove', 'audit-streams/' || name,
       jsonb_build_object('sequence', sequence)
from gone returning id
"""


class StreamReadings(BaseModel):
    """A stream: its position, what it has not sent, whether a process has its lease, and why it fails."""

    name: str
    sequence: int
    unsent: int
    oldest_seconds: float
    sent_at: datetime | None
    sending: bool
    failing_since: datetime | None
    failing_seconds: float
    last_error: str | None


def read_streams(connection: psycopg.Connection[tuple[object, ...]]) -> list[StreamReadings]:
    """Every enabled stream, by name."""
    # As in every module that only some commands need: start-up stays light.
    from psycopg.rows import class_row

    return connection.cursor(row_factory=class_row(StreamReadings)).execute(_READ).fetchall()


_COLUMNS: list[Column] = [
    ("name", lambda s: s.name), ("sequence", lambda s: s.sequence), ("unsent", lambda s: s.unsent),
    ("sent at", lambda s: s.sent_at), ("sending", lambda s: s.sending), ("failing since", lambda s: s.failing_since),
    ("why", lambda s: s.last_error),
]  # fmt: skip


@command(app, "list")
def list_streams(session: Session) -> None:
    """List the enabled streams: the row up to which each has sent, and why it fails."""
    # As above.
    import psycopg

    with psycopg.connect(session.database_url()) as connection:
        found = read_streams(connection)
    show_list(session, found, _COLUMNS, empty="the audit is streamed nowhere")


@command(app, "remove")
def remove(
    session: Session, name: Annotated[Literal["nats", "syslog"], typer.Argument(help="the stream to end")]
) -> None:
    """End a stream: the archive waits for it no longer. A streamer that is set up for it begins anew with the oldest row kept."""
    # As above.
    import psycopg

    with psycopg.connect(session.database_url(), autocommit=True) as connection:
        removed = connection.execute(_REMOVE, {"name": name}).fetchone() is not None
    if not removed:
        raise Refused(
            f"there is no stream {name}; `berth audit-stream list` shows those that are enabled", code="not_found"
        )
    if session.json:
        session.console.print_json(data={"removed": name})
        return
    session.console.print(f"the stream {name} is removed", markup=False)
