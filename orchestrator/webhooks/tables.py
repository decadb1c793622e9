"""Tables of webhooks and their deliveries.

Created by migrations/schema/webhooks.sql, which explains columns and indexes; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

webhooks = Table(
    "webhooks",
    METADATA,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey("tenants.id")),
    Column("url", Text, CheckConstraint("length(url) between 1 and 2000"), nullable=False),
    Column("description", Text, CheckConstraint("length(description) <= 1000")),
    Column("types", ARRAY(Text), nullable=False, server_default="{}"),
    Column("signing", Text, CheckConstraint("signing in ('hmac', 'ed25519')"), nullable=False),
    Column("keys", JSONB, nullable=False),
    Column(
        "state",
        Text,
        CheckConstraint("state in ('enabled', 'disabled', 'deleted')"),
        nullable=False,
        server_default="enabled",
    ),
    Column(
        "disabled_reason",
        Text,
        CheckConstraint("disabled_reason in ('requested', 'gone', 'failing', 'key_revoked', 'key_expired')"),
    ),
    Column("disabled_at", TIMESTAMPTZ),
    Column("position", BigInteger, CheckConstraint("position >= 0"), nullable=False),
    Column("versions_max", BigInteger, CheckConstraint("versions_max > 0"), nullable=False),
    Column("numbered", BigInteger, nullable=False, server_default=text("0")),
    Column("missed_before", BigInteger),
    Column("failing_since", TIMESTAMPTZ),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("updated_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("created_by", Uuid),
    Column("key_expires_at", TIMESTAMPTZ),
    CheckConstraint(
        "(state = 'disabled') = (disabled_reason is not null) and (disabled_reason is null) = (disabled_at is null)",
        name="webhook_disabled",
    ),
    Index("webhooks_by_tenant", "tenant_id", "id", postgresql_where=text("state <> 'deleted'")),
    Index(
        "webhooks_of_expiring_keys",
        "key_expires_at",
        "id",
        postgresql_where=text("state = 'enabled' and key_expires_at is not null"),
    ),
    Index("webhooks_deleted", "id", postgresql_where=text("state = 'deleted'")),
    postgresql_with={"fillfactor": 50},
)

webhook_deliveries = Table(
    "webhook_deliveries",
    METADATA,
    Column("webhook_id", Uuid, ForeignKey("webhooks.id"), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("version", BigInteger),
    Column("event_id", Uuid, nullable=False),
    Column("event_type", Text, nullable=False),
    Column(
        "state",
        Text,
        CheckConstraint("state in ('pending', 'succeeded', 'failed')"),
        nullable=False,
        server_default="pending",
    ),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("next_attempt_at", TIMESTAMPTZ, server_default=NOW),
    Column("leased", Boolean, nullable=False, server_default=text("false")),
    Column("claims", Integer, nullable=False, server_default=text("0")),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("attempted_at", TIMESTAMPTZ),
    Column("duration_ms", Integer),
    Column("response_status", Integer),
    Column("response_excerpt", Text, CheckConstraint("length(response_excerpt) <= 1000")),
    Column("error", Text, CheckConstraint("length(error) <= 200")),
    Column("history", JSONB, nullable=False, server_default="[]"),
    Column("ended_at", TIMESTAMPTZ),
    PrimaryKeyConstraint("webhook_id", "number"),
    CheckConstraint(
        "(state = 'pending') = (next_attempt_at is not null) and (state = 'pending') = (ended_at is null)",
        name="webhook_delivery_waits",
    ),
    Index("webhook_deliveries_due", "webhook_id", "next_attempt_at", postgresql_where=text("state = 'pending'")),
    Index("webhook_deliveries_next", "next_attempt_at", postgresql_where=text("state = 'pending'")),
    Index("webhook_deliveries_needed", "webhook_id", "version", postgresql_where=text("state = 'pending'")),
    Index("webhook_deliveries_ended", "ended_at", postgresql_where=text("ended_at is not null")),
    postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.05, "autovacuum_vacuum_threshold": 1000},
)
