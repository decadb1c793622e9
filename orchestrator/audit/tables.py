"""The table of what operators did.

Created by migrations/schema/audit.sql, which explains columns and indexes; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Identity, Index, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

audit = Table(
    "audit",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("principal_kind", Text, nullable=False),
    Column("principal_id", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", JSONB, nullable=False, server_default="{}"),
    Column("request_id", Text),
    Index("audit_by_subject", "subject", "id"),
)
