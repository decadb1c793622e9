"""Tables without a noun: the applied SQL functions, and row counts that are read without counting.

Created by migrations/schema/database.sql, which explains columns and indexes, and later revisions; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
    text,
)

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

sql_functions = Table(
    "sql_functions",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("arguments", Text, nullable=False),
    Column("sha256", Text, CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'"), nullable=False),
    Column("generation", Integer, CheckConstraint("generation > 0"), nullable=False),
    Column("applied_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("deprecated_at", TIMESTAMPTZ),
    Column("deprecated_in", Integer),
    CheckConstraint("(deprecated_at is null) = (deprecated_in is null)", name="deprecation_is_whole"),
)

function_generation = Table(
    "function_generation",
    METADATA,
    Column("one", Boolean, CheckConstraint("one"), primary_key=True, server_default=text("true")),
    Column("generation", Integer, CheckConstraint("generation >= 0"), nullable=False),
    Column(
        "oldest_process",
        Text,
        CheckConstraint("oldest_process ~ '^[0-9]{4}$'", name="oldest_process_is_a_revision"),
        nullable=False,
    ),
)

live_rows = Table(
    "live_rows",
    METADATA,
    Column("kind", Text, nullable=False),
    Column("stripe", Integer, nullable=False),
    Column("number", BigInteger, nullable=False),
    PrimaryKeyConstraint("kind", "stripe", name="live_rows_once"),
    postgresql_with={"fillfactor": 25, "autovacuum_vacuum_scale_factor": 0, "autovacuum_vacuum_threshold": 2000},
)

tenant_rows = Table(
    "tenant_rows",
    METADATA,
    Column("tenant_id", Uuid, nullable=False),
    Column("kind", Text, nullable=False),
    Column("stripe", Integer, nullable=False),
    Column("number", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "kind", "stripe", name="tenant_rows_once"),
    postgresql_with={"fillfactor": 25, "autovacuum_vacuum_scale_factor": 0, "autovacuum_vacuum_threshold": 2000},
)
