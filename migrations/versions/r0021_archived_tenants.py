"""The tenant of an archived allocation, and the name of the segment that contains it: the API answers with both."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0021"
down_revision = "0020"

_STATEMENTS = b"""
alter table archived_allocations add column tenant_id uuid;
comment on column archived_allocations.tenant_id is 'Null if it was archived before revision 0021.';
alter table archive_segments add column name text;
comment on column archive_segments.name is 'Name of the file below the destination; null if it was written before revision 0021.';
"""


def upgrade() -> None:
    """Add the columns; they are null in the rows of earlier runs."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
