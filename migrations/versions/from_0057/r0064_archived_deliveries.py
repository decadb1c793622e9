"""Ended deliveries of webhooks leave for the archive."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0064"
down_revision = "0063"
LOCKS = ("archive_segments",)

_STATEMENTS = b"""
alter table archive_segments drop constraint archive_segment_kind, add constraint archive_segment_kind check (
    kind in ('allocations', 'audit', 'webhook_deliveries'));
comment on column archive_segments.kind is 'What was deleted because of it: allocations, rows of audit_chain, or deliveries.';
comment on column archive_segments.deleted is 'Allocations, rows of the audit or deliveries that were deleted because of it.';
create table archive_uses (
    kind     text primary key constraint archive_use_kind check (kind in ('webhook_deliveries')),
    since    timestamptz not null default clock_timestamp(),
    last_run timestamptz not null default clock_timestamp()
);
comment on table archive_uses is 'What the archive alone deletes: sweepers leave rows of these kinds to it.';
comment on column archive_uses.kind is 'As of segments.';
comment on column archive_uses.since is 'When a run first archived it.';
comment on column archive_uses.last_run is 'When the newest run archived all that was due; until then, when the first one began.';
"""


def upgrade() -> None:
    """Add the kind of segments. A sender of the version before still deletes deliveries by their age."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
