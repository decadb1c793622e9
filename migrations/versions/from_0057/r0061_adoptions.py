"""What an operator stated, and a BMC reported, of a machine that ran already when its allocation was recorded."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0061"
down_revision = "0060"
LOCKS = ("allocations",)

_STATEMENTS = b"""
alter table allocations add column adoption jsonb;
comment on column allocations.adoption is 'Of an adopted machine: what its first run needs; null: deployed by Berth.';
"""


def upgrade() -> None:
    """Add the column. Processes of the version before insert rows without it."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
