"""Segments of the archive that contain rows of the audit, and the row after which the chain begins."""

from __future__ import annotations

from alembic import op

from migrations.functions import create_functions
from migrations.upgrading import driver_connection

revision = "0020"
down_revision = "0019"

_TABLES = b"""
alter table archive_segments
    add column kind text not null default 'allocations',
    add column audit_first bigint,
    add column audit_last bigint,
    add column audit_hash sha256_digest,
    add constraint archive_segment_kind check (kind in ('allocations', 'audit')),
    add constraint archive_segment_of_audit check (
        case kind when 'audit' then audit_first > 0 and audit_last >= audit_first and audit_hash is not null
                                    and deleted = audit_last - audit_first + 1
                  else audit_first is null and audit_last is null and audit_hash is null end is true);
comment on column archive_segments.kind is 'What was deleted because of it: allocations, or rows of audit_chain.';
comment on column archive_segments.deleted is 'Allocations, or rows of the audit, that were deleted because of it.';
comment on column archive_segments.audit_first is 'Sequence of its first row of the audit.';
comment on column archive_segments.audit_last is 'Sequence of its last row of the audit.';
comment on column archive_segments.audit_hash is 'Hash of its last row of the audit.';

create table audit_anchor (
    one      boolean primary key default true check (one),
    sequence bigint not null,
    hash     sha256_digest not null
);
comment on table audit_anchor is 'One row: the newest row of the audit that is in the archive alone. The chain continues it.';
comment on column audit_anchor.one is 'Always true, so that there is one row.';
comment on column audit_anchor.sequence is 'Its sequence; 0: no row was archived.';
comment on column audit_anchor.hash is 'Its hash; 32 zero bytes if no row was archived.';
insert into audit_anchor (sequence, hash) values (0, decode(repeat('00', 32), 'hex'));
"""

_TRIGGERS = b"""
drop trigger audit_chain_keeps on audit_chain;
create trigger audit_chain_keeps before update or truncate on audit_chain
    for each statement execute function refuse_change();
create trigger audit_chain_leaves after delete on audit_chain referencing old table as gone
    for each statement execute function require_archived();
create trigger audit_anchor_advances before update on audit_anchor for each row execute function require_segment();
create trigger audit_anchor_keeps before delete or truncate on audit_anchor
    for each statement execute function refuse_change();
"""


def upgrade() -> None:
    """Let rows of the audit leave once a segment of the archive that contains them is recorded, and only then."""
    connection = driver_connection(op.get_bind())
    connection.execute(_TABLES)
    create_functions(connection, ["require_archived", "require_segment"])
    connection.execute(_TRIGGERS)
