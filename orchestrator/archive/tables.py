"""Tables of the archive: sealed segments, and the allocations that were deleted because a segment contains them.

`berth archive run` writes them (berth/cli/deployment/archive). Created by revision 0013; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Integer, Table, Text, Uuid

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

archive_segments = Table(
    "archive_segments",
    METADATA,
    Column("sequence", BigInteger, CheckConstraint("sequence > 0"), primary_key=True, autoincrement=False),
    Column("manifest_sha256", Text, CheckConstraint("manifest_sha256 ~ '^[0-9a-f]{64}$'"), nullable=False),
    Column("destination", Text, nullable=False),
    Column("deleted", Integer, CheckConstraint("deleted >= 0"), nullable=False),
    Column("deleted_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
)

archived_allocations = Table(
    "archived_allocations",
    METADATA,
    Column("allocation_id", Uuid, primary_key=True),
    Column("segment", BigInteger, ForeignKey("archive_segments.sequence"), nullable=False),
    Index("archived_allocations_by_segment", "segment"),
)
