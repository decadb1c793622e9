"""Which opening of a history each row of the log belongs to, and whether the commits of the log's writer waited for standbys."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0072"
down_revision = "0071"
LOCKS = ("log_head",)

_STATEMENTS = b"""
alter table log_head
    add column epoch text not null default left(gen_random_uuid()::text, 8)
        constraint log_head_epoch check (epoch ~ '^[0-9a-f]{8}$'),
    add column waits_for_standbys boolean not null default false;
comment on column log_head.epoch is
    'Random; another one from each acceptance of a writer and each history on. Sequencing adds it to the leader id of rows.';
comment on column log_head.waits_for_standbys is
    'Whether commits of the accepted leader waited for a standby when it last sequenced events.';
comment on column log.leader_id is
    'System identifier and timeline of the PostgreSQL that sequenced it, and the epoch; without one before revision 0072.';
"""


def upgrade() -> None:
    """Add the columns. Until the log's writer next sequences an event, commits count as those that waited for no standby."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
