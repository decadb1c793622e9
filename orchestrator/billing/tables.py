"""Tables of metering, the ledger and prepaid balances.

Created by migrations/schema/billing.sql, which explains columns and indexes; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Numeric,
    Table,
    Text,
    Uuid,
    text,
)

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

metering_intervals = Table(
    "metering_intervals",
    METADATA,
    Column("allocation_id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, nullable=False),
    Column("sku", Text, nullable=False),
    Column("gpus", Integer, CheckConstraint("gpus > 0"), nullable=False),
    Column("price_version", BigInteger, nullable=False),
    Column(
        "price_micro_per_gpu_second", BigInteger, CheckConstraint("price_micro_per_gpu_second >= 0"), nullable=False
    ),
    Column("active_at", TIMESTAMPTZ, nullable=False),
    Column("opened_version", BigInteger, nullable=False),
    Column("ended_at", TIMESTAMPTZ),
    Column("closed_version", BigInteger),
    CheckConstraint("(ended_at is null) = (closed_version is null)", name="closed_whole"),
    Index("metering_intervals_open", "tenant_id", postgresql_where=text("ended_at is null")),
    Index("metering_intervals_ended", "tenant_id", "ended_at"),
)

ledger = Table(
    "ledger",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("tenant_id", Uuid, nullable=False),
    Column("kind", Text, nullable=False),
    Column("amount_micro_units", Numeric(38, 0), CheckConstraint("amount_micro_units >= 0"), nullable=False),
    Column("written_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("allocation_id", Uuid),
    Column("sku", Text),
    Column("gpus", Integer),
    Column("price_version", BigInteger),
    Column("price_micro_per_gpu_second", BigInteger),
    Column("starts_at", TIMESTAMPTZ),
    Column("ends_at", TIMESTAMPTZ),
    Column("gpu_microseconds", Numeric(38, 0)),
    Column("version", BigInteger),
    Column("actor_id", Text),
    Column("reference", Text),
    Column("operation_key", Text),
    CheckConstraint("kind in ('usage', 'top_up', 'withdrawal', 'credit')", name="ledger_kind_check"),
    CheckConstraint(
        "(kind in ('usage', 'credit')) = (num_nulls(allocation_id, sku, gpus, price_version, "
        "price_micro_per_gpu_second, starts_at, ends_at, gpu_microseconds, version) = 0)",
        name="usage_is_whole",
    ),
    CheckConstraint(
        "(kind not in ('usage', 'credit')) = (num_nulls(actor_id, operation_key) = 0)", name="payment_is_whole"
    ),
    CheckConstraint("kind <> 'withdrawal' or reference is not null", name="withdrawal_says_why"),
    Index("ledger_usage_once", "allocation_id", unique=True, postgresql_where=text("kind = 'usage'")),
    Index("ledger_credit_once", "allocation_id", "version", unique=True, postgresql_where=text("kind = 'credit'")),
    Index("ledger_by_tenant", "tenant_id", "id"),
    Index("ledger_payment_once", "actor_id", "operation_key", unique=True, postgresql_where=text("kind <> 'usage'")),
)

balances = Table(
    "balances",
    METADATA,
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), primary_key=True),
    Column("prepaid", Boolean, nullable=False, server_default=text("false")),
    Column("settled_micro_units", Numeric(38, 0), nullable=False, server_default=text("0")),
    Column("low_threshold_micro_units", Numeric(38, 0), CheckConstraint("low_threshold_micro_units >= 0")),
    Column("low_told_at", TIMESTAMPTZ),
    Column("look_at", TIMESTAMPTZ),
    Column("looked_at", TIMESTAMPTZ),
    CheckConstraint("prepaid or num_nonnulls(look_at, low_told_at) = 0", name="only_prepaid_is_looked_at"),
    Index("balances_due", "look_at", postgresql_where=text("look_at is not null")),
    postgresql_with={"fillfactor": 70},
)
