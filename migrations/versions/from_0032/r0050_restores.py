"""Restores of the database to an earlier moment: while one is open, no process serves."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0050"
down_revision = "0049"
LOCKS = ("nodes",)

_STATEMENTS = b"""
create table restores (
    epoch         uuid primary key default gen_random_uuid(),
    begun_at      timestamptz not null default clock_timestamp(),
    written_by    text not null,
    leader_id     text not null,
    head_version  bigint not null constraint restore_head check (head_version >= 0),
    last_event_at timestamptz,
    raised_at     timestamptz,
    closed_at     timestamptz
);
comment on table restores is 'Restores of the database to an earlier moment. While one is open, no process of Berth serves.';
comment on column restores.epoch is 'Drawn at random at each restore, also when a server returns on the same timeline.';
comment on column restores.written_by is 'The server and timeline that had written the log.';
comment on column restores.head_version is 'Where the restored log ended.';
comment on column restores.last_event_at is 'The time of its last event, where the lost interval begins. Null: it had none.';
comment on column restores.raised_at is 'When every sequence was raised; null: not yet.';
create unique index one_open_restore on restores ((closed_at is null)) where closed_at is null;
comment on index one_open_restore is 'Each new connection of a process looks for it.';
create table awaited_inventories (
    node_id uuid primary key references nodes (id),
    epoch   uuid not null references restores (epoch),
    since   timestamptz not null default clock_timestamp()
);
comment on table awaited_inventories is 'Nodes whose slots stay out of service until their inventory arrives after a restore.';
create index awaited_inventories_of_restore on awaited_inventories (epoch);
comment on index awaited_inventories_of_restore is 'For the reference to restores.';
"""


def upgrade() -> None:
    """Add the table. Processes of the version before do not read it: stop them before a restore."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
