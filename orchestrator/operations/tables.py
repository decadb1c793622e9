"""The table of operations: one row for each idempotency key, with the stored response.

Created by migrations/schema/operations.sql, which explains columns and indexes; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from orchestrator.database.metadata import IDEMPOTENCY_KEY, METADATA, NOW, SHA256_DIGEST, TIMESTAMPTZ

operations = Table(
    "operations",
    METADATA,
    Column("scope", Uuid, nullable=False),
    Column("key", IDEMPOTENCY_KEY, nullable=False),
    Column("fingerprint", SHA256_DIGEST),
    Column("status", SmallInteger),
    Column("code", Text),
    Column("body", Text),
    Column("subject_id", Uuid),
    Column("event_id", Uuid),
    Column("version", BigInteger),
    Column("leader_id", Text),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("retire_after", TIMESTAMPTZ, nullable=False),
    Column("ending", Boolean, nullable=False, server_default=text("false")),
    Column("caller", JSONB),
    PrimaryKeyConstraint("scope", "key", name="operation_runs_once"),
    CheckConstraint(
        "fingerprint is not null or (status = 409 and code = 'operation_fenced') is true",
        name="tombstone_is_fenced",
    ),
    Index("operations_retiring", "retire_after"),
    postgresql_with={"fillfactor": 60},
)
