"""Tables of the log: events, their order, and the positions of its readers.

Created by migrations/schema/log.sql, which explains columns and indexes; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ, Domain

_REFERENCE = Domain("event_reference", Text, check="length(value) <= 255")

outbox = Table(
    "outbox",
    METADATA,
    Column("id", BigInteger, Identity(always=True, cache=1), primary_key=True),
    Column("event_id", Uuid, nullable=False, server_default=text("uuidv7()")),
    Column("event_type", Domain("event_type", Text, check="length(value) between 1 and 100"), nullable=False),
    Column("occurred_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("correlation_id", Uuid, nullable=False),
    Column("tenant_id", Uuid),
    Column("subject", Domain("event_subject", Text, check="length(value) <= 200"), nullable=False),
    Column("operation_key", _REFERENCE),
    Column("request_id", _REFERENCE),
    Column(
        "payload",
        Domain("event_payload", JSONB, constraint_name="payload_bounded", check="octet_length(value::text) <= 262144"),
        nullable=False,
    ),
    postgresql_with={
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 1000,
        "autovacuum_vacuum_insert_threshold": 100000,
    },
)

log = Table(
    "log",
    METADATA,
    Column("version", BigInteger, nullable=False, autoincrement=False),
    Column("prev_version", BigInteger, nullable=False),
    Column("outbox_id", BigInteger, nullable=False),
    Column("event_id", Uuid, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("occurred_at", TIMESTAMPTZ, nullable=False),
    Column("correlation_id", Uuid, nullable=False),
    Column("tenant_id", Uuid),
    Column("subject", Text, nullable=False),
    Column("operation_key", Text),
    Column("request_id", Text),
    Column("leader_id", Text, nullable=False),
    Column("payload", JSONB, nullable=False),
    PrimaryKeyConstraint("version", name="log_version"),
    Index("log_by_event", "event_id"),
    Index("log_by_tenant", "tenant_id", "version"),
    Index(
        "log_starts",
        "subject",
        "version",
        postgresql_where=text("event_type in ('provisioning.requested', 'provisioning.releasing.requested')"),
    ),
    Index("log_verbs", "subject", "version", postgresql_where=text("event_type = 'allocation.verb_requested'")),
    Index(
        "log_transactions",
        text("coalesce(tenant_id, '00000000-0000-0000-0000-000000000000')"),
        "version",
        postgresql_where=text("event_type = 'transaction'"),
    ),
    Index("log_transaction_keys", "operation_key", postgresql_where=text("event_type = 'transaction'")),
    postgresql_partition_by="range (version)",
)

log_head = Table(
    "log_head",
    METADATA,
    Column("one", Boolean, CheckConstraint("one"), primary_key=True, server_default=text("true")),
    Column("version", BigInteger, nullable=False),
    Column("leader_id", Text, nullable=False),
    Column("partition_versions", BigInteger, nullable=False),
    Column("epoch", Text, nullable=False, server_default=text("left(gen_random_uuid()::text, 8)")),
    Column("waits_for_standbys", Boolean, nullable=False, server_default=text("false")),
    CheckConstraint("epoch ~ '^[0-9a-f]{8}$'", name="log_head_epoch"),
)

log_tenants = Table(
    "log_tenants",
    METADATA,
    Column("tenant_id", Uuid, primary_key=True),
    Column("version", BigInteger, nullable=False),
    postgresql_with={"fillfactor": 50},
)

log_first = Table(
    "log_first",
    METADATA,
    Column("one", Boolean, CheckConstraint("one"), primary_key=True, server_default=text("true")),
    Column("version", BigInteger, CheckConstraint("version > 0"), nullable=False),
)

log_stream = Table(
    "log_stream",
    METADATA,
    Column("one", Boolean, CheckConstraint("one"), primary_key=True, server_default=text("true")),
    Column("first_version", BigInteger, CheckConstraint("first_version > 0"), nullable=False),
    Column("ordered_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("skipped_to", BigInteger, nullable=False, server_default=text("0")),
)

log_truncation = Table(
    "log_truncation",
    METADATA,
    Column("one", Boolean, CheckConstraint("one"), primary_key=True, server_default=text("true")),
    Column("looked_at", TIMESTAMPTZ),
    Column("blocked_since", TIMESTAMPTZ),
    Column("blocked_below", BigInteger),
    CheckConstraint("(blocked_since is null) = (blocked_below is null)", name="log_truncation_blocked"),
)

consumer_positions = Table(
    "consumer_positions",
    METADATA,
    Column("consumer", Text, primary_key=True),
    Column("version", BigInteger, CheckConstraint("version >= 0"), nullable=False),
    Column("updated_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
)

dead_letters = Table(
    "dead_letters",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("consumer", Text, CheckConstraint("length(consumer) between 1 and 100"), nullable=False),
    Column("version", BigInteger, CheckConstraint("version > 0"), nullable=False),
    Column("event_id", Uuid),
    Column("event_type", Text, CheckConstraint("length(event_type) <= 100")),
    Column(
        "reason", Text, CheckConstraint("reason in ('unreadable', 'stub', 'refused', 'handler_error')"), nullable=False
    ),
    Column("detail", Text, CheckConstraint("length(detail) <= 1000"), nullable=False),
    Column("excerpt", Text, CheckConstraint("length(excerpt) <= 4000"), nullable=False),
    Column("tries", Integer, CheckConstraint("tries > 0"), nullable=False),
    Column(
        "state",
        Text,
        CheckConstraint("state in ('dead', 'retried', 'discarded')"),
        nullable=False,
        server_default="dead",
    ),
    Column("first_at", TIMESTAMPTZ, nullable=False),
    Column("last_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("retry_asked_at", TIMESTAMPTZ),
    Column("settled_at", TIMESTAMPTZ),
    Column("row_version", BigInteger, nullable=False, server_default=text("1")),
    UniqueConstraint("consumer", "version", name="dead_letter_once"),
    CheckConstraint("(state = 'dead') = (settled_at is null)", name="dead_letter_settled_has_time"),
    CheckConstraint("state = 'dead' or retry_asked_at is null", name="dead_letter_settled_waits_for_nothing"),
    Index("dead_letters_dead", "consumer", "id", postgresql_where=text("state = 'dead'")),
    Index("dead_letters_due", "consumer", "retry_asked_at", "id", postgresql_where=text("retry_asked_at is not null")),
    Index("dead_letters_settled", "settled_at", postgresql_where=text("settled_at is not null")),
)

retention_policies = Table(
    "retention_policies",
    METADATA,
    Column("scope", Uuid, nullable=False),
    Column("policy_id", Text, CheckConstraint("length(policy_id) between 1 and 100"), nullable=False),
    Column("prevent_truncate", BigInteger, CheckConstraint("prevent_truncate >= 0"), nullable=False),
    Column("versions_max", BigInteger, CheckConstraint("versions_max > 0")),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("updated_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("scope", "policy_id", name="retention_policy"),
)
