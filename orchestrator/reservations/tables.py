"""Tables of reservations and of the resources that operators register.

Created by migrations/schema/reservations.sql, which explains columns and indexes; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    Sequence,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

reservation_positions = Sequence("reservation_positions", data_type=BigInteger, cache=1, metadata=METADATA)

resources = Table(
    "resources",
    METADATA,
    Column("id", Text, CheckConstraint("id ~ '^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$'"), primary_key=True),
    Column("unit", BigInteger, nullable=False, server_default=text("nextval('unit_numbers')")),
    Column(
        "state",
        Text,
        CheckConstraint("state in ('in_service', 'out_of_service')"),
        nullable=False,
        server_default="in_service",
    ),
    Column("reason", Text),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("row_version", BigInteger, nullable=False, server_default=text("1")),
    UniqueConstraint("unit", name="resource_unit_unique"),
    postgresql_with={"fillfactor": 70},
)

reservations = Table(
    "reservations",
    METADATA,
    Column("id", Uuid, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("tenant_id", Uuid, nullable=False),
    Column("holder_id", Text, CheckConstraint("length(holder_id) between 1 and 200"), nullable=False),
    Column(
        "state",
        Text,
        CheckConstraint("state in ('hold', 'confirmed', 'cancelled', 'expired', 'consumed', 'released')"),
        nullable=False,
        server_default="hold",
    ),
    Column("row_version", BigInteger, nullable=False, server_default=text("1")),
    Column("resources", ARRAY(Text), CheckConstraint("cardinality(resources) between 1 and 1024"), nullable=False),
    Column("sku", Text),
    Column("gpus", Integer, CheckConstraint("gpus > 0")),
    Column("region", Text),
    Column(
        "quantity", Integer, CheckConstraint("quantity between 1 and 1024"), nullable=False, server_default=text("1")
    ),
    Column("gpus_held", Integer, CheckConstraint("gpus_held >= 0"), nullable=False),
    Column("starts_at", TIMESTAMPTZ, CheckConstraint("isfinite(starts_at)"), nullable=False),
    Column("ends_at", TIMESTAMPTZ, CheckConstraint("isfinite(ends_at)")),
    Column("hold_until", TIMESTAMPTZ, CheckConstraint("isfinite(hold_until)"), nullable=False),
    Column("expires_at", TIMESTAMPTZ),
    Column("template", JSONB),
    Column("name", Text),
    Column("operation_key", Text, nullable=False),
    Column("operation_fingerprint", LargeBinary, nullable=False),
    Column("correlation_id", Uuid, nullable=False),
    Column("held_at", TIMESTAMPTZ, nullable=False),
    Column("confirmed_at", TIMESTAMPTZ),
    Column("ended_at", TIMESTAMPTZ),
    Column("held_event", Uuid, nullable=False),
    Column("confirmed_event", Uuid),
    Column("ended_event", Uuid),
    Column("retire_after", TIMESTAMPTZ),
    Column("failure_code", Text),
    Column("failure_detail", Text),
    Column("waits_for", Text),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    UniqueConstraint("operation_key", "tenant_id", name="reservation_runs_once"),
    CheckConstraint("ends_at is null or ends_at > starts_at", name="window_not_empty"),
    CheckConstraint("(sku is null) = (gpus is null) and (sku is null) = (region is null)", name="sku_is_complete"),
    CheckConstraint("(state = 'hold') <= (expires_at is not null)", name="hold_has_deadline"),
    CheckConstraint(
        "state <> 'confirmed' or (expires_at is null and confirmed_at is not null)", name="confirmed_has_no_deadline"
    ),
    CheckConstraint(
        "(state in ('hold', 'confirmed')) = (ended_at is null) "
        "and (ended_at is null) = (ended_event is null) "
        "and (ended_at is null) = (retire_after is null)",
        name="reservation_ended_is_complete",
    ),
    CheckConstraint(
        "(state in ('hold', 'confirmed')) = (waits_for is not null) "
        "and (waits_for is null) = (waits_since is null) and (state <> 'hold' "
        "or waits_until is not null)",
        name="reservation_waits_while_live",
    ),
    UniqueConstraint("position", name="reservation_position_unique"),
    Index("reservations_expiring", "expires_at", "position", postgresql_where=text("state = 'hold'")),
    Index(
        "reservations_due",
        "waits_until",
        "position",
        postgresql_where=text("state = 'confirmed' and waits_until is not null"),
    ),
    Index("reservations_retiring", "retire_after", "position", postgresql_where=text("retire_after is not null")),
    Index("reservations_late", "position", postgresql_where=text("state = 'confirmed' and waits_for = 'node'")),
    Index("reservations_by_tenant", "tenant_id", "position", postgresql_where=text("position > 0")),
    Index("reservations_by_state", "tenant_id", "state", "position", postgresql_where=text("row_version > 0")),
    postgresql_with={
        "fillfactor": 70,
        "autovacuum_vacuum_scale_factor": 0.02,
        "autovacuum_vacuum_threshold": 2000,
        "autovacuum_analyze_scale_factor": 0.002,
        "autovacuum_analyze_threshold": 1000,
    },
)

reservation_watermark = Table(
    "reservation_watermark",
    METADATA,
    Column("one", Boolean, CheckConstraint("one"), primary_key=True, server_default=text("true")),
    Column("position", BigInteger, nullable=False, server_default=text("0")),
)
