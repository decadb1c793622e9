"""Since when a claim that was moved has its units."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0071"
down_revision = "0070"
LOCKS = ("claims",)

_STATEMENTS = b"""
alter table claims add column moved_at timestamptz;
comment on column claims.moved_at is
    'From when on a claim that was moved has the right to its units; null: from the beginning of its window.';
"""


def upgrade() -> None:
    """Add the column. Of claims that were moved before, the event `reservation.moved` says when, as long as the log has it."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
