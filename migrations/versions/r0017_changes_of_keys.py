"""Last use and successors of API keys."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0017"
down_revision = "0016"

_STATEMENTS = b"""
alter table api_keys add column last_used_at timestamptz, add column replaced_by uuid;
comment on column api_keys.last_used_at is 'Last use of the key, at most about two minutes too early; null: never used.';
comment on column api_keys.replaced_by is 'The key that a rotation made in its place; it ends at expires_at.';
"""


def upgrade() -> None:
    """Add both columns. Processes of the version before write neither."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
