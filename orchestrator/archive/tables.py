"""Tables of the archive: sealed segments, the allocations that were deleted because of one, and what it alone deletes.

`berth archive run` writes them (berth/cli/deployment/archive). Created by revisions 0013, 0020, 0021 and 0064; a test
keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Integer, Table, Text, Uuid

from orchestrator.database.metadata import METADATA, NOW, SHA256_DIGEST, TIMESTAMPTZ

archive_segments = Table(
    "archive_segments",
    METADATA,
    Column("sequence", BigInteger, CheckConstraint("sequence > 0"), primary_key=True, autoincrement=False),
    Column("manifest_sha256", Text, CheckConstraint("manifest_sha256 ~ '^[0-9a-f]{64}$'"), nullable=False),
    Column("destination", Text, nullable=False),
    Column("deleted", Integer, CheckConstraint("deleted >= 0"), nullable=False),
    Column("deleted_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("kind", Text, nullable=False, server_default="allocations"),
    Column("audit_first", BigInteger),
    Column("audit_last", BigInteger),
    Column("audit_hash", SHA256_DIGEST),
    Column("name", Text),
    CheckConstraint("kind in ('allocations', 'audit', 'webhook_deliveries')", name="archive_segment_kind"),
    CheckConstraint(
        "case kind when 'audit' then audit_first > 0 and audit_last >= audit_first and audit_hash is not null"
        " and deleted = audit_last - audit_first + 1"
        " else audit_first is null and audit_last is null and audit_hash is null end is true",
        name="archive_segment_of_audit",
    ),
)

archived_allocations = Table(
    "archived_allocations",
    METADATA,
    Column("allocation_id", Uuid, primary_key=True),
    Column("segment", BigInteger, ForeignKey("archive_segments.sequence"), nullable=False),
    Column("tenant_id", Uuid),
    Index("archived_allocations_by_segment", "segment"),
)

archive_uses = Table(
    "archive_uses",
    METADATA,
    Column("kind", Text, primary_key=True),
    Column("since", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("last_run", TIMESTAMPTZ, nullable=False, server_default=NOW),
    CheckConstraint("kind in ('webhook_deliveries')", name="archive_use_kind"),
)
