"""Tables of the fleet: pools, nodes with their slots and certificates, orphans, absences, topologies and health.

Created by migrations/schema/nodes.sql, which explains columns and indexes; a test keeps both equal.
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
    Sequence,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, INET, JSONB

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ, Domain

fences = Sequence("fences", data_type=BigInteger, cache=1, metadata=METADATA)
unit_numbers = Sequence("unit_numbers", data_type=BigInteger, cache=1, metadata=METADATA)

pools = Table(
    "pools",
    METADATA,
    Column("id", Integer, Identity(always=True), primary_key=True),
    Column("region", Text, ForeignKey("regions.name"), nullable=False),
    Column("gpu_model", Text, nullable=False),
    Column("shape", Text, CheckConstraint("shape in ('baremetal', 'gpu_slice')"), nullable=False),
    Column("driver", Text),
    UniqueConstraint("region", "gpu_model", "shape", name="pool_unique"),
)

_SLOTS = Domain("node_slots", SmallInteger, check="value between 0 and 62")

nodes = Table(
    "nodes",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("name", Domain("node_name", Text, check="value ~ '^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$'"), nullable=False),
    Column("pool_id", Integer, ForeignKey("pools.id"), nullable=False),
    Column("region", Text, nullable=False),
    Column("gpu_model", Text, nullable=False),
    Column("shape", Text, nullable=False),
    Column("slot_count", _SLOTS, nullable=False),
    Column("half_slots", _SLOTS, nullable=False),
    Column("unit_base", BigInteger, nullable=False),
    Column(
        "state",
        Domain("node_state", Text, check="value in ('registered', 'active', 'cordoned', 'draining', 'retired')"),
        nullable=False,
        server_default="registered",
    ),
    Column("online", Boolean, nullable=False, server_default=text("false")),
    Column("free_mask", BigInteger, nullable=False),
    Column("fit_class", SmallInteger, nullable=False),
    Column("placement_rank", Integer, nullable=False, server_default=text("(random() * 2147483647)::integer")),
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("hardware_id", Text),
    Column("address", Text),
    Column("faults", JSONB, nullable=False, server_default="{}"),
    Column("enrolled_at", TIMESTAMPTZ),
    Column("last_seen_at", TIMESTAMPTZ),
    Column("agent_version", Text),
    Column("held_allocations", JSONB),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("row_version", BigInteger, nullable=False, server_default=text("1")),
    Column("inventory", JSONB),
    Column("inventory_after", TIMESTAMPTZ),
    Column("identity_conflict_at", TIMESTAMPTZ),
    Column("driver", Text),
    Column("key_set_serial", BigInteger),
    Column("key_set_refusal", Text),
    Column("agent_run", Uuid),
    Column("agent_features", ARRAY(Text), nullable=False, server_default="{}"),
    Column("underlay", INET),
    CheckConstraint("family(underlay) = 4 and masklen(underlay) = 32", name="node_underlay_is_a_host"),
    CheckConstraint("half_slots <= slot_count", name="half_within_node"),
    CheckConstraint("(half_slots = 0) = (slot_count = 0)", name="half_of_slots"),
    CheckConstraint("free_mask >> slot_count = 0", name="free_mask_within_node"),
    CheckConstraint("(inventory is null) = (inventory_after is null)", name="inventory_has_time"),
    UniqueConstraint("name", name="node_name_unique"),
    UniqueConstraint("unit_base", name="node_units_unique"),
    Index(
        "nodes_by_fit",
        "pool_id",
        "fit_class",
        "placement_rank",
        "id",
        postgresql_where=text("state = 'active' and online"),
    ),
    Index("nodes_by_pool_layout", "pool_id", "slot_count", "half_slots"),
    Index("nodes_without_agent", "id", postgresql_where=text("driver = 'redfish' and enrolled_at is null")),
    Index("nodes_without_slots", "id", postgresql_where=text("slot_count = 0")),
    Index(
        "nodes_out_of_service", "id", postgresql_where=text("(state <> 'active' or not online) and state <> 'retired'")
    ),
    postgresql_with={"fillfactor": 70},
)

slots = Table(
    "slots",
    METADATA,
    Column("unit", BigInteger, primary_key=True, autoincrement=False),
    Column("node_id", Uuid, ForeignKey("nodes.id"), nullable=False),
    Column("slot_index", SmallInteger, nullable=False),
    Column("numa_half", SmallInteger, CheckConstraint("numa_half in (0, 1)"), nullable=False),
    Column(
        "state",
        Text,
        CheckConstraint("state in ('in_service', 'out_of_service')"),
        nullable=False,
        server_default="in_service",
    ),
    Column("reason", Text),
    UniqueConstraint("node_id", "slot_index", name="slot_unique"),
    Index("slots_out_of_service", "node_id", postgresql_where=text("state = 'out_of_service'")),
)

enrolment_tokens = Table(
    "enrolment_tokens",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("node_id", Uuid, ForeignKey("nodes.id"), nullable=False),
    Column("token_hash", LargeBinary, CheckConstraint("octet_length(token_hash) = 32"), nullable=False),
    Column("hardware_id", Text),
    Column("created_by", Uuid, nullable=False),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("expires_at", TIMESTAMPTZ, nullable=False),
    Column("used_at", TIMESTAMPTZ),
    UniqueConstraint("token_hash", name="enrolment_token_unique"),
    Index("enrolment_tokens_open", "node_id", postgresql_where=text("used_at is null")),
)

node_certificates = Table(
    "node_certificates",
    METADATA,
    Column("serial", Text, primary_key=True),
    Column("node_id", Uuid, ForeignKey("nodes.id"), nullable=False),
    Column("node_epoch", BigInteger, nullable=False),
    Column("key_sha256", LargeBinary, CheckConstraint("octet_length(key_sha256) = 32"), nullable=False),
    Column("not_before", TIMESTAMPTZ, nullable=False),
    Column("not_after", TIMESTAMPTZ, nullable=False),
    Column("issued_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("revoked_at", TIMESTAMPTZ),
    Column("revoked_reason", Text),
    Column("predecessor", Text),
    Column("pem", Text),
    Column(
        "authority_key_sha256",
        LargeBinary,
        CheckConstraint("octet_length(authority_key_sha256) = 32", name="authority_key_is_sha256"),
    ),
    Index("node_certificates_by_node", "node_id"),
    Index("one_successor", "predecessor", unique=True, postgresql_where=text("predecessor is not null")),
)

certificate_requests = Table(
    "certificate_requests",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("node_id", Uuid, ForeignKey("nodes.id"), nullable=False),
    Column("node_epoch", BigInteger, nullable=False),
    Column("predecessor", Text),
    Column("key_sha256", LargeBinary, CheckConstraint("octet_length(key_sha256) = 32"), nullable=False),
    Column("csr_pem", Text, nullable=False),
    Column("request_id", Text),
    Column("requested_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("serial", Text),
    Column("refusal", Text),
    Column("attestation_secret", LargeBinary),
    Column("quote", LargeBinary),
    Column("quote_signature", LargeBinary),
    CheckConstraint("serial is null or refusal is null", name="issued_or_refused"),
    CheckConstraint(
        "(quote is null) = (attestation_secret is null) and (quote is null) = (quote_signature is null)",
        name="quote_is_complete",
    ),
    UniqueConstraint(
        "node_id", "node_epoch", "predecessor", name="one_request_for_a_link", postgresql_nulls_not_distinct=True
    ),
    Index("certificate_requests_pending", "id", postgresql_where=text("serial is null and refusal is null")),
)

slot_quarantines = Table(
    "slot_quarantines",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("node_id", Uuid, ForeignKey("nodes.id"), nullable=False),
    Column("slot_index", SmallInteger, nullable=False),
    Column("unit", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("evidence", Text),
    Column("quarantined_at", TIMESTAMPTZ, nullable=False, server_default=text("clock_timestamp()")),
    Column("quarantined_by", Text, nullable=False),
    Column("returned_at", TIMESTAMPTZ),
    Column("returned_by", Text),
    Column("note", Text),
    Column(
        "source",
        Text,
        CheckConstraint(
            "source in ('operator', 'probe', 'fault_report', 'release', 'attestation')", name="quarantine_source"
        ),
        nullable=False,
        server_default="operator",
    ),
    Column("fault_report_id", Uuid),
    Column("last_fault_at", TIMESTAMPTZ),
    Column("burn_in_id", Uuid),
    CheckConstraint("num_nulls(returned_at, returned_by, note) in (0, 3)", name="return_is_whole"),
    Index("one_quarantine", "unit", unique=True, postgresql_where=text("returned_at is null")),
    Index("quarantines_by_node", "node_id", "id"),
)

node_orphans = Table(
    "node_orphans",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("node_id", Uuid, ForeignKey("nodes.id"), nullable=False),
    Column("allocation_id", Uuid, nullable=False),
    Column("slots", ARRAY(SmallInteger), nullable=False),
    Column("fence", BigInteger),
    Column(
        "state",
        Text,
        CheckConstraint("state in ('reported', 'adopted', 'destroying', 'destroyed')"),
        nullable=False,
        server_default="reported",
    ),
    Column("row_version", BigInteger, nullable=False, server_default=text("1")),
    Column("first_seen_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("last_seen_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("decided_by", Text),
    Column("decided_at", TIMESTAMPTZ),
    Column("reason", Text),
    Column("adopted_for", Uuid),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("failure_code", Text),
    Column("failure_detail", Text),
    Column("destroyed_at", TIMESTAMPTZ),
    Column("proof", JSONB),
    Column("waits_for", Text),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    CheckConstraint(
        "(state = 'destroyed') = (waits_for is null) "
        "and (waits_for is null) = (waits_since is null) and (state <> 'destroying' "
        "or waits_until is not null)",
        name="orphan_waits_unless_destroyed",
    ),
    CheckConstraint(
        "(state = 'destroyed') = (destroyed_at is not null) and (state = 'destroyed') = (proof is not null)",
        name="orphan_destroyed_by_proof",
    ),
    CheckConstraint("(decided_by is null) = (decided_at is null)", name="orphan_decision_is_complete"),
    Index("one_orphan", "node_id", "allocation_id", unique=True, postgresql_where=text("state <> 'destroyed'")),
    Index("orphans_by_node", "node_id", "id"),
    Index("orphans_undecided", "waits_until", postgresql_where=text("state in ('destroying', 'adopted')")),
)

allocation_absences = Table(
    "allocation_absences",
    METADATA,
    Column("allocation_id", Uuid, primary_key=True),
    Column("node_id", Uuid, nullable=False),
    Column("first_missed", TIMESTAMPTZ, nullable=False),
    Column("last_missed", TIMESTAMPTZ, nullable=False),
    Column("inventories", Integer, CheckConstraint("inventories > 0"), nullable=False, server_default=text("1")),
    Column("reported_at", TIMESTAMPTZ),
)

node_topologies = Table(
    "node_topologies",
    METADATA,
    Column("node_id", Uuid, ForeignKey("nodes.id"), primary_key=True),
    Column("task_id", Uuid, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("agent_run", Uuid),
    Column("waits_for", Text),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    Column("next_at", TIMESTAMPTZ, nullable=False),
    Column("failure", Text, CheckConstraint("char_length(failure) <= 500", name="topology_failure_is_bounded")),
    Column("found", JSONB),
    Column("found_digest", Text),
    Column("found_at", TIMESTAMPTZ),
    Column("approved", JSONB),
    Column("approved_digest", Text),
    Column("approved_at", TIMESTAMPTZ),
    Column("approved_by", Text),
    Column("differences", JSONB, nullable=False, server_default="[]"),
    Column("drifted_slots", ARRAY(SmallInteger), nullable=False, server_default="{}"),
    Column("drifted_since", TIMESTAMPTZ),
    Column("slot_processors", Integer),
    Column("slot_memory_bytes", BigInteger),
    CheckConstraint("num_nulls(waits_for, waits_since, waits_until) in (0, 3)", name="topology_waits_for_node"),
    CheckConstraint("num_nulls(found, found_digest, found_at) in (0, 3)", name="topology_found_is_whole"),
    CheckConstraint(
        "num_nulls(approved, approved_digest, approved_at, approved_by) in (0, 4)", name="topology_approved_is_whole"
    ),
    CheckConstraint("(drifted_slots = '{}') = (drifted_since is null)", name="topology_drift_has_time"),
    Index("topologies_open", "task_id", postgresql_where=text("waits_for is not null")),
    Index("topologies_drifted", "node_id", postgresql_where=text("drifted_slots <> '{}'")),
)

node_health = Table(
    "node_health",
    METADATA,
    Column("node_id", Uuid, ForeignKey("nodes.id"), primary_key=True),
    Column("task_id", Uuid, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("waits_for", Text),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    Column("next_at", TIMESTAMPTZ, nullable=False),
    Column("failure", Text, CheckConstraint("char_length(failure) <= 500", name="health_failure_is_bounded")),
    Column("report", JSONB),
    Column("reported_at", TIMESTAMPTZ),
    Column("faults", JSONB, nullable=False, server_default="[]"),
    Column("accepted", JSONB, nullable=False, server_default="{}"),
    CheckConstraint("num_nulls(waits_for, waits_since, waits_until) in (0, 3)", name="health_waits_for_node"),
    CheckConstraint("num_nulls(report, reported_at) in (0, 2)", name="health_report_is_whole"),
    Index("health_open", "task_id", postgresql_where=text("waits_for is not null")),
    Index("health_faulty", "node_id", postgresql_where=text("faults <> '[]'")),
)

node_health_reports = Table(
    "node_health_reports",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("node_id", Uuid, ForeignKey("nodes.id"), nullable=False),
    Column("reported_at", TIMESTAMPTZ, nullable=False),
    Column("report", JSONB, nullable=False),
    Column("faults", JSONB, nullable=False),
    Index("health_reports_by_node", "node_id", "id"),
)

node_burn_ins = Table(
    "node_burn_ins",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("node_id", Uuid, ForeignKey("nodes.id"), nullable=False),
    Column("slots", ARRAY(SmallInteger), nullable=False),
    Column("requested_at", TIMESTAMPTZ, nullable=False, server_default=text("clock_timestamp()")),
    Column("requested_by", Text, nullable=False),
    Column("task_id", Uuid),
    Column("issued_at", TIMESTAMPTZ),
    Column("shared", Boolean),
    Column("waits_for", Text),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    Column("ended_at", TIMESTAMPTZ),
    Column("outcome", Text, CheckConstraint("outcome in ('passed', 'faulty', 'failed')", name="burn_in_outcome")),
    Column("failure", Text, CheckConstraint("char_length(failure) <= 500", name="burn_in_failure_is_bounded")),
    Column("report", JSONB),
    CheckConstraint("num_nulls(task_id, issued_at, shared) in (0, 3)", name="burn_in_task_is_whole"),
    CheckConstraint("num_nulls(ended_at, outcome) in (0, 2)", name="burn_in_end_is_whole"),
    CheckConstraint("num_nulls(waits_for, waits_since, waits_until) = 3 * num_nonnulls(outcome)", name="burn_in_waits"),
    CheckConstraint("outcome <> 'passed' or num_nulls(task_id, report) = 0", name="burn_in_pass_is_proven"),
    Index("one_burn_in", "node_id", unique=True, postgresql_where=text("ended_at is null")),
    Index("burn_ins_by_node", "node_id", "id"),
)
