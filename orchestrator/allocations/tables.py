"""Tables of allocations, their timelines, and the faults that tenants reported of them.

Created by migrations/schema/allocations.sql, which explains columns and indexes; a test keeps both equal.
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
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from orchestrator.database.metadata import FINITE_TIME, GPU_COUNT, METADATA, NOW, TIMESTAMPTZ, Domain

allocations = Table(
    "allocations",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("tenant_id", Uuid, nullable=False),
    Column(
        "state",
        Domain(
            "allocation_state",
            Text,
            check="value in ('requested', 'provisioning', 'active', 'releasing', 'released', 'release_failed', 'failed')",
        ),
        nullable=False,
        server_default="requested",
    ),
    Column("row_version", BigInteger, nullable=False, server_default=text("1")),
    Column("sku", Text, nullable=False),
    Column("shape", Text, nullable=False),
    Column("gpu_model", Text, nullable=False),
    Column("gpus", GPU_COUNT, nullable=False),
    Column("region", Text, nullable=False),
    Column("image", Text, nullable=False),
    Column("price_version", BigInteger, nullable=False),
    Column("name", Text),
    Column("labels", JSONB, nullable=False, server_default="{}"),
    Column("user_data", Text),
    Column("ssh_public_keys", ARRAY(Text), nullable=False),
    Column("node_id", Uuid, nullable=False),
    Column("claim_id", BigInteger, nullable=False),
    Column("operation_key", Text, nullable=False),
    Column("operation_fingerprint", LargeBinary, nullable=False),
    Column("correlation_id", Uuid, nullable=False),
    Column("requested_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("active_at", TIMESTAMPTZ),
    Column("releasing_at", TIMESTAMPTZ),
    Column("released_at", TIMESTAMPTZ),
    Column("release_failed_at", TIMESTAMPTZ),
    Column("failed_at", TIMESTAMPTZ),
    Column("failure_code", Text),
    Column("failure_detail", Text),
    Column("connection", JSONB),
    Column("release_result", JSONB),
    Column("release_attempts", Integer, nullable=False, server_default=text("0")),
    Column("waits_for", Text),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    Column("provision_until", TIMESTAMPTZ),
    Column("ends_at", FINITE_TIME),
    Column("reservation_id", Uuid),
    Column("ending_told_at", TIMESTAMPTZ),
    Column("guest_state", Text),
    Column("guest_verb", Text),
    Column("guest_failure_code", Text),
    Column("guest_failure_detail", Text),
    Column("restart_policy", Text, nullable=False, server_default=text("'always'")),
    Column("health", Text),
    Column("health_cause", Text),
    Column("health_since", TIMESTAMPTZ),
    Column("proof_of_life_at", TIMESTAMPTZ),
    Column("lost_at", TIMESTAMPTZ),
    Column("health_until", TIMESTAMPTZ),
    Column("first_boot", Text),
    Column("first_boot_detail", Text),
    Column("first_boot_since", TIMESTAMPTZ),
    Column("rescue", JSONB),
    Column("adoption", JSONB),
    UniqueConstraint("operation_key", "tenant_id", name="creation_runs_once"),
    CheckConstraint("(state in ('released', 'failed')) = (waits_for is null)", name="final_waits_for_nothing"),
    CheckConstraint(
        "(waits_for is null) = (waits_since is null) and (waits_for is null or state = 'active' "
        "or state = 'release_failed' or waits_until is not null)",
        name="waiting_is_complete",
    ),
    CheckConstraint("state <> 'active' or active_at is not null", name="active_has_time"),
    CheckConstraint(
        "state not in ('releasing', 'released', 'release_failed') or releasing_at is not null",
        name="releasing_has_time",
    ),
    CheckConstraint("(state = 'released') = (released_at is not null)", name="released_has_time"),
    CheckConstraint("guest_state in ('running', 'stopped', 'unknown', 'rescue')", name="guest_state_is_known"),
    CheckConstraint("guest_verb in ('reboot', 'stop', 'start', 'rebuild', 'rescue')", name="guest_verb_is_known"),
    CheckConstraint("restart_policy in ('always', 'never')", name="restart_policy_is_known"),
    CheckConstraint("health in ('degraded', 'lost')", name="health_is_known"),
    CheckConstraint(
        "num_nulls(health, health_cause, health_since, proof_of_life_at) in (0, 4) "
        "and (health is not null or health_until is null) "
        "and (health is not distinct from 'lost') = (lost_at is not null)",
        name="health_is_whole",
    ),
    CheckConstraint(
        "first_boot in ('pending', 'done', 'degraded', 'error', 'unknown', 'not_applicable')",
        name="first_boot_is_known",
    ),
    CheckConstraint(
        "num_nulls(first_boot, first_boot_since) in (0, 2) and (first_boot is not null or first_boot_detail is null) "
        "and char_length(first_boot_detail) <= 500",
        name="first_boot_is_whole",
    ),
    CheckConstraint(
        "(state = 'failed') = (failed_at is not null) and (state <> 'failed' or failure_code is not null)",
        name="failed_has_reason",
    ),
    Index("allocations_overdue", "waits_until", postgresql_where=text("waits_until is not null")),
    Index("allocations_live_by_node", "node_id", postgresql_where=text("state not in ('released', 'failed')")),
    Index(
        "allocations_ending",
        "ends_at",
        postgresql_where=text("ends_at is not null and state in ('requested', 'provisioning', 'active')"),
    ),
    Index("allocations_by_reservation", "reservation_id", postgresql_where=text("reservation_id is not null")),
    Index("allocations_unhealthy", "health_until", postgresql_where=text("health is not null and state = 'active'")),
    Index("allocations_waiting_for_units", "node_id", postgresql_where=text("waits_for = 'units'")),
    Index(
        "allocations_by_tenant", "tenant_id", "id", postgresql_where=text("id > '00000000-0000-0000-0000-000000000000'")
    ),
    postgresql_with={"fillfactor": 70},
)

allocation_timeline = Table(
    "allocation_timeline",
    METADATA,
    Column("id", BigInteger, Identity(always=True), nullable=False),
    Column("allocation_id", Uuid, nullable=False),
    Column("at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("kind", Domain("timeline_kind", Text, check="value in ('transition', 'progress', 'note')"), nullable=False),
    Column("from_state", Text),
    Column("to_state", Text),
    Column("row_version", BigInteger),
    Column("phase", Text),
    Column("code", Text),
    Column("detail", Text),
    Column(
        "actor_kind",
        Domain("actor_kind", Text, check="value in ('tenant', 'admin', 'billing', 'worker', 'node', 'system')"),
        nullable=False,
    ),
    Column("actor_id", Text),
    Column("fence", BigInteger),
    CheckConstraint(
        "(kind = 'transition') = (to_state is not null and row_version is not null)", name="transition_names_states"
    ),
    PrimaryKeyConstraint("allocation_id", "id"),
    Index(
        "timeline_transition_once",
        "allocation_id",
        "row_version",
        unique=True,
        postgresql_where=text("kind = 'transition'"),
    ),
)

fault_reports = Table(
    "fault_reports",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("tenant_id", Uuid, nullable=False),
    Column("allocation_id", Uuid, nullable=False),
    Column("node_id", Uuid, ForeignKey("nodes.id"), nullable=False),
    Column("slots", ARRAY(SmallInteger), nullable=False),
    Column("symptom", Text, nullable=False),
    Column("evidence", Text, nullable=False),
    Column("details", JSONB, nullable=False, server_default="{}"),
    Column("replace", Boolean, nullable=False),
    Column("reported_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("reported_by", Text, nullable=False),
    Column("closed_at", TIMESTAMPTZ),
    Column("replacement_id", Uuid),
    Column("replacement_outcome", Text),
    Column("waits_for", Text),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    CheckConstraint(
        "symptom in ('unreachable', 'gpu_error', 'slow', 'network', 'storage', 'other')", name="symptom_is_known"
    ),
    CheckConstraint(
        "replacement_outcome in ('replaced', 'failed', 'released', 'overdue')", name="replacement_outcome_is_known"
    ),
    CheckConstraint("num_nulls(waits_for, waits_since, waits_until) in (0, 3)", name="replacement_wait_is_whole"),
    CheckConstraint(
        "replace = (replacement_id is not null) "
        "and (replacement_id is not null) = (num_nonnulls(waits_for, replacement_outcome) = 1)",
        name="replacement_is_whole",
    ),
    Index("fault_reports_open", "allocation_id", postgresql_where=text("closed_at is null")),
    Index("fault_reports_by_tenant", "tenant_id", "reported_at"),
    Index("fault_reports_waiting", "waits_until", postgresql_where=text("waits_for is not null")),
    Index("fault_reports_closed", "closed_at", postgresql_where=text("closed_at is not null")),
)
