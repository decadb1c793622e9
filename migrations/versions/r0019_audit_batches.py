"""Numbers of the batches in which processes write queued audit rows, so that a repeated batch is stored once."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0019"
down_revision = "0018"

_STATEMENTS = b"""
create table audit_batches (
    recorder   uuid primary key,
    batch      bigint not null,
    written_at timestamptz not null default clock_timestamp()
);
comment on table audit_batches is 'The newest batch of queued audit rows that each process has stored.';
comment on column audit_batches.recorder is 'Random id of the queue of one process.';
comment on column audit_batches.batch is 'Number of the batch; ascending for each recorder.';
comment on column audit_batches.written_at is 'When it was stored; rows older than seven days are deleted.';
"""


def upgrade() -> None:
    """Add the table. Processes of the version before do not use it."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
