"""Break-glass keys."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0018"
down_revision = "0017"

_STATEMENTS = b"""
alter table api_keys add column break_glass boolean not null default false, add column break_glass_event_at timestamptz,
    add constraint api_key_break_glass_is_operators check (not break_glass or tenant_id is null);
comment on column api_keys.break_glass is 'A key for emergencies: its uses raise key.break_glass_used.';
comment on column api_keys.break_glass_event_at is 'When the last of these events was written; null: none yet.';
"""


def upgrade() -> None:
    """Add both columns; no existing key is one. Processes of the version before raise no event: create such keys afterwards."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
