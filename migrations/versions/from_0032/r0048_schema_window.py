"""The oldest process that the schema serves."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0048"
down_revision = "0047"
LOCKS = ("function_generation",)

# Processes of revision 0047 do not read it; they are served as well.
_STATEMENTS = b"""
alter table function_generation add column oldest_process text not null default '0047'
    constraint oldest_process_is_a_revision check (oldest_process ~ '^[0-9]{4}$');
alter table function_generation alter column oldest_process drop default;
comment on column function_generation.oldest_process is
    'Revision of the oldest processes that may serve on this schema; a process of an earlier one refuses to start.';
"""


def upgrade() -> None:
    """Add the column, with processes of the revision before as the oldest."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
