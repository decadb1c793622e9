"""The tables of the audit: rows that wait, batches of queued rows, the chain, and its streams. The view `audit` shows all rows.

Created by migrations/versions/r0016_audit_chain.py, r0019_audit_batches.py, r0020_audit_retention.py and r0024_audit_streams.py,
which explain columns and indexes; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Identity,
    Index,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from orchestrator.database.metadata import METADATA, NOW, SHA256_DIGEST, TIMESTAMPTZ

audit_pending = Table(
    "audit_pending",
    METADATA,
    Column("id", BigInteger, Identity(always=True, cache=1), primary_key=True),
    Column("at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("principal_kind", Text, nullable=False),
    Column("principal_id", Text, nullable=False),
    Column("role", Text),
    Column("tenant_id", Uuid),
    Column("source", Text),
    Column("user_agent", Text),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("status", SmallInteger),
    Column("code", Text, nullable=False, server_default="ok"),
    Column("operation_key", Text),
    Column("request_id", Text),
    Column("correlation_id", Uuid),
    Column("detail", JSONB, nullable=False, server_default="{}"),
    postgresql_with={
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 1000,
        "autovacuum_vacuum_insert_threshold": 100000,
    },
)

audit_batches = Table(
    "audit_batches",
    METADATA,
    Column("recorder", Uuid, primary_key=True),
    Column("batch", BigInteger, nullable=False),
    Column("written_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
)

audit_chain = Table(
    "audit_chain",
    METADATA,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("recorded_at", TIMESTAMPTZ, nullable=False),
    Column("id", BigInteger, nullable=False),
    Column("at", TIMESTAMPTZ, nullable=False),
    Column("principal_kind", Text, nullable=False),
    Column("principal_id", Text, nullable=False),
    Column("role", Text),
    Column("tenant_id", Uuid),
    Column("source", Text),
    Column("user_agent", Text),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("status", SmallInteger),
    Column("code", Text, nullable=False),
    Column("operation_key", Text),
    Column("request_id", Text),
    Column("correlation_id", Uuid),
    Column("detail", JSONB, nullable=False),
    Column("hash", SHA256_DIGEST, nullable=False),
    Index("audit_by_subject", "subject", "sequence"),
    Index("audit_by_principal", "principal_id", "sequence"),
    Index("audit_by_tenant", "tenant_id", "sequence"),
    Index("audit_by_action", "action", "sequence"),
    Index("audit_refusals", "code", "sequence", postgresql_where=text("code <> 'ok'")),
    Index("audit_by_time", "recorded_at", "sequence"),
)

audit_head = Table(
    "audit_head",
    METADATA,
    Column("one", Boolean, CheckConstraint("one"), primary_key=True, server_default=text("true")),
    Column("sequence", BigInteger, nullable=False),
    Column("recorded_at", TIMESTAMPTZ, nullable=False),
    Column("hash", SHA256_DIGEST, nullable=False),
)

audit_anchor = Table(
    "audit_anchor",
    METADATA,
    Column("one", Boolean, CheckConstraint("one"), primary_key=True, server_default=text("true")),
    Column("sequence", BigInteger, nullable=False),
    Column("hash", SHA256_DIGEST, nullable=False),
)

audit_streams = Table(
    "audit_streams",
    METADATA,
    Column("name", Text, CheckConstraint("name in ('nats', 'syslog')", name="audit_stream_name"), primary_key=True),
    Column("sequence", BigInteger, CheckConstraint("sequence >= 0", name="audit_stream_position"), nullable=False),
    Column("started_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("sent_at", TIMESTAMPTZ),
    Column("leased_by", Uuid),
    Column("leased_until", TIMESTAMPTZ),
    Column("failing_since", TIMESTAMPTZ),
    Column("last_error", Text, CheckConstraint("length(last_error) <= 500", name="audit_stream_error_is_short")),
    CheckConstraint("(leased_by is null) = (leased_until is null)", name="audit_stream_lease_is_whole"),
    CheckConstraint("(failing_since is null) = (last_error is null)", name="audit_stream_failure_is_whole"),
)
