"""Removal of user data and SSH keys, also of allocations that ended before; the archive of ended allocations."""

from __future__ import annotations

from alembic import op

from migrations.functions import create_functions
from migrations.upgrading import driver_connection

revision = "0013"
down_revision = "0012"

_STATEMENTS = b"""
create table archive_segments (
    sequence        bigint primary key check (sequence > 0),
    manifest_sha256 text not null check (manifest_sha256 ~ '^[0-9a-f]{64}$'),
    destination     text not null,
    deleted         integer not null check (deleted >= 0),
    deleted_at      timestamptz not null default clock_timestamp()
);
comment on table archive_segments is 'Sealed segments of the archive whose rows were deleted; the newest continues the chain.';
comment on column archive_segments.manifest_sha256 is 'SHA-256 of the manifest, which the next one names.';
comment on column archive_segments.destination is 'Where the segment was written.';
comment on column archive_segments.deleted is 'Allocations that were deleted because of it.';
create table archived_allocations (
    allocation_id uuid primary key,
    segment       bigint not null references archive_segments (sequence)
);
comment on table archived_allocations is 'Allocations that are in the archive alone: metering and the log still name them.';
comment on column archived_allocations.segment is 'Sequence of the segment that contains the allocation.';
-- Count the allocations of a segment (berth verify).
create index archived_allocations_by_segment on archived_allocations (segment);
select remove_login_data(a.id) from allocations a join claims c on c.id = a.claim_id
where a.state in ('released', 'failed') and c.closed_at is not null
  and (a.user_data is not null or cardinality(a.ssh_public_keys) > 0);
update reservations set template = template - 'user_data' where ended_at is not null and template ? 'user_data';
comment on column allocations.user_data is 'Null also once cleanup is proven.';
comment on column allocations.ssh_public_keys is 'Empty once cleanup is proven.';
comment on column node_tasks.envelope is 'The signed task, byte for byte as the node verifies it. After proof of cleanup without '
    'user data and SSH keys.';
"""


def upgrade() -> None:
    """Create the tables, and remove what is left of ended allocations and reservations."""
    connection = driver_connection(op.get_bind())
    create_functions(connection, ["remove_login_data"])
    connection.execute(_STATEMENTS)
