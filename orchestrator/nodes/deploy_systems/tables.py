"""Tables of deploy systems. Revisions 0047, 0048 and 0052 explain columns and indexes."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from orchestrator.database.metadata import METADATA, TIMESTAMPTZ

deploy_systems = Table(
    "deploy_systems",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("node_id", Uuid, ForeignKey("nodes.id"), nullable=False),
    Column(
        "deploy_epoch",
        BigInteger,
        CheckConstraint("deploy_epoch >= 1", name="deploy_epoch_is_positive"),
        nullable=False,
    ),
    Column(
        "token_hash",
        LargeBinary,
        CheckConstraint("octet_length(token_hash) = 32", name="deploy_token_is_sha256"),
        nullable=False,
    ),
    Column("smbios_uuid", Uuid, nullable=False),
    Column(
        "macs",
        ARRAY(Text),
        CheckConstraint("cardinality(macs) between 1 and 64", name="deploy_system_has_macs"),
        nullable=False,
    ),
    Column("tpm_required", Boolean, nullable=False),
    Column("claim_id", BigInteger),
    Column(
        "certificate_seconds",
        Integer,
        CheckConstraint("certificate_seconds between 60 and 606600", name="deploy_certificate_is_short"),
        nullable=False,
    ),
    Column("permitted_at", TIMESTAMPTZ, nullable=False, server_default=text("clock_timestamp()")),
    Column("permitted_by", Text, nullable=False),
    Column("expires_at", TIMESTAMPTZ, nullable=False),
    Column("ended_at", TIMESTAMPTZ),
    Column(
        "ended_by",
        Text,
        CheckConstraint("ended_by in ('superseded', 'revoked', 'handed_over')", name="deploy_system_end"),
    ),
    Column("refusals", Integer, nullable=False, server_default=text("0")),
    Column("used_at", TIMESTAMPTZ),
    Column("key_sha256", LargeBinary, CheckConstraint("octet_length(key_sha256) = 32", name="deploy_key_is_sha256")),
    Column("csr_pem", Text),
    Column("request_id", Text),
    Column("attestation_secret", LargeBinary),
    Column("quote", LargeBinary),
    Column("quote_signature", LargeBinary),
    Column("refusal", Text),
    Column("serial", Text),
    Column("pem", Text),
    Column("not_after", TIMESTAMPTZ),
    Column(
        "authority_key_sha256",
        LargeBinary,
        CheckConstraint("octet_length(authority_key_sha256) = 32", name="deploy_authority_is_sha256"),
    ),
    Column("hello_at", TIMESTAMPTZ),
    Column("hello", JSONB, CheckConstraint("octet_length(hello::text) <= 4096", name="deploy_hello_is_bounded")),
    Column(
        "wipe_statement",
        JSONB,
        CheckConstraint("octet_length(wipe_statement::text) <= 69632", name="deploy_statement_is_bounded"),
    ),
    CheckConstraint("num_nulls(ended_at, ended_by) in (0, 2)", name="deploy_system_end_is_whole"),
    CheckConstraint("num_nulls(used_at, key_sha256, csr_pem) in (0, 3)", name="deploy_system_use_is_whole"),
    CheckConstraint(
        "num_nulls(serial, pem, not_after, authority_key_sha256) in (0, 4)", name="deploy_certificate_is_whole"
    ),
    CheckConstraint(
        "serial is null or used_at is not null and refusal is null", name="deploy_certificate_was_requested"
    ),
    CheckConstraint("num_nulls(attestation_secret, quote, quote_signature) in (0, 3)", name="deploy_quote_is_complete"),
    CheckConstraint(
        "num_nulls(hello_at, hello) in (0, 2) and (hello is null or serial is not null)",
        name="deploy_hello_is_certified",
    ),
    UniqueConstraint("node_id", "deploy_epoch", name="deploy_epoch_unique"),
    UniqueConstraint("token_hash", name="deploy_token_unique"),
    Index("one_deploy_system", "node_id", unique=True, postgresql_where=text("ended_at is null")),
    Index("deploy_certificate_unique", "serial", unique=True),
    Index(
        "deploy_certificates_pending",
        "id",
        postgresql_where=text("used_at is not null and serial is null and refusal is null and ended_at is null"),
    ),
)

deploy_tasks = Table(
    "deploy_tasks",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("node_id", Uuid, ForeignKey("nodes.id"), nullable=False),
    Column("deploy_epoch", BigInteger, nullable=False),
    Column(
        "type",
        Text,
        CheckConstraint(
            "type in ('metal.inspect', 'metal.deploy', 'metal.wipe', 'metal.rescue', 'metal.attest')",
            name="deploy_task_type",
        ),
        nullable=False,
    ),
    Column(
        "parameters",
        JSONB,
        CheckConstraint("octet_length(parameters::text) <= 131072", name="deploy_parameters_are_bounded"),
        nullable=False,
    ),
    Column("claim_id", BigInteger),
    Column("notify", Text),
    Column(
        "seconds_max",
        Integer,
        CheckConstraint("seconds_max between 60 and 604800", name="deploy_task_is_bounded"),
        nullable=False,
    ),
    Column("requested_at", TIMESTAMPTZ, nullable=False, server_default=text("clock_timestamp()")),
    Column("requested_by", Text, nullable=False),
    Column("task_id", Uuid),
    Column("issued_at", TIMESTAMPTZ),
    Column("waits_for", Text),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    Column("ended_at", TIMESTAMPTZ),
    Column(
        "outcome", Text, CheckConstraint("outcome in ('completed', 'failed', 'not_run')", name="deploy_task_outcome")
    ),
    Column("failure", Text, CheckConstraint("char_length(failure) <= 500", name="deploy_failure_is_bounded")),
    Column("result", JSONB),
    ForeignKeyConstraint(
        ["node_id", "deploy_epoch"],
        ["deploy_systems.node_id", "deploy_systems.deploy_epoch"],
        name="deploy_task_has_permission",
        ondelete="CASCADE",
    ),
    CheckConstraint("num_nulls(task_id, issued_at) in (0, 2)", name="deploy_task_is_whole"),
    CheckConstraint("num_nulls(ended_at, outcome) in (0, 2)", name="deploy_task_end_is_whole"),
    CheckConstraint(
        "(failure is not null) = (coalesce(outcome, 'completed') <> 'completed')", name="deploy_task_failed_why"
    ),
    CheckConstraint(
        "num_nulls(waits_for, waits_since, waits_until) = 3 * num_nonnulls(outcome)", name="deploy_task_waits"
    ),
    CheckConstraint(
        "coalesce(outcome, '') <> 'completed' or num_nulls(task_id, result) = 0", name="deploy_task_is_proven"
    ),
    Index("one_deploy_task", "node_id", unique=True, postgresql_where=text("ended_at is null")),
    Index("deploy_tasks_by_node", "node_id", "id"),
    Index("deploy_tasks_by_epoch", "node_id", "deploy_epoch"),
)

node_machines = Table(
    "node_machines",
    METADATA,
    Column("node_id", Uuid, ForeignKey("nodes.id"), primary_key=True),
    Column("smbios_uuid", Uuid, nullable=False),
    Column("macs", ARRAY(Text), nullable=False),
    Column("report", JSONB, nullable=False),
    Column("inspected_at", TIMESTAMPTZ, nullable=False),
    Column(
        "firmware", JSONB, CheckConstraint("octet_length(firmware::text) <= 65536", name="machine_firmware_is_bounded")
    ),
    Column(
        "bmc_firmware",
        JSONB,
        CheckConstraint("octet_length(bmc_firmware::text) <= 131072", name="machine_bmc_firmware_is_bounded"),
    ),
)

firmware_lists = Table(
    "firmware_lists",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column(
        "vendor",
        Text,
        CheckConstraint("char_length(vendor) between 1 and 64", name="firmware_vendor_is_bounded"),
        nullable=False,
    ),
    Column(
        "product",
        Text,
        CheckConstraint("char_length(product) between 1 and 64", name="firmware_product_is_bounded"),
        nullable=False,
    ),
    Column(
        "components",
        JSONB,
        CheckConstraint("octet_length(components::text) <= 262144", name="firmware_list_is_bounded"),
        nullable=False,
    ),
    Column("changed_at", TIMESTAMPTZ, nullable=False, server_default=text("clock_timestamp()")),
    Column("changed_by", Text, nullable=False),
    UniqueConstraint("vendor", "product", name="one_firmware_list_of_model"),
)

deploy_runs = Table(
    "deploy_runs",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("node_id", Uuid, ForeignKey("nodes.id"), nullable=False),
    Column("site_id", Uuid, nullable=False),
    Column(
        "kind",
        Text,
        CheckConstraint(
            "kind in ('inspect', 'wipe', 'deploy', 'stop', 'start', 'reboot', 'rescue', 'attest')",
            name="deploy_run_kind",
        ),
        nullable=False,
    ),
    Column(
        "step",
        Text,
        CheckConstraint(
            "step in ('power_off', 'to_provisioning', 'start', 'work', 'eject', 'end', 'to_tenant', 'power_on', 'reach',"
            " 'rotate')",
            name="deploy_run_step",
        ),
        nullable=False,
        server_default="power_off",
    ),
    Column(
        "medium",
        JSONB,
        CheckConstraint("octet_length(medium::text) <= 16384", name="deploy_run_medium_is_bounded"),
        nullable=False,
    ),
    Column("requested_at", TIMESTAMPTZ, nullable=False, server_default=text("clock_timestamp()")),
    Column("requested_by", Text, nullable=False),
    Column("stop_requested_at", TIMESTAMPTZ),
    Column("stop_requested_by", Text),
    Column("deploy_epoch", BigInteger),
    Column("bmc_task_id", Uuid, nullable=False),
    Column("deploy_task_id", Uuid),
    Column("attempts", SmallInteger, nullable=False, server_default=text("0")),
    Column("waits_for", Text),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    Column("ended_at", TIMESTAMPTZ),
    Column(
        "outcome", Text, CheckConstraint("outcome in ('completed', 'failed', 'stopped')", name="deploy_run_outcome")
    ),
    Column("failure", Text, CheckConstraint("char_length(failure) <= 500", name="deploy_run_failure_is_bounded")),
    Column(
        "parameters",
        JSONB,
        CheckConstraint("octet_length(parameters::text) <= 131072", name="deploy_run_parameters_are_bounded"),
        nullable=False,
        server_default=text("'{}'"),
    ),
    Column(
        "work_seconds",
        Integer,
        CheckConstraint("work_seconds between 60 and 604800", name="deploy_run_is_bounded"),
        nullable=False,
        server_default=text("1800"),
    ),
    Column("task_id", Uuid),
    Column("allocation_id", Uuid),
    Column("claim_id", BigInteger),
    Column(
        "findings",
        JSONB,
        CheckConstraint("octet_length(findings::text) <= 65536", name="deploy_run_findings_are_bounded"),
        nullable=False,
        server_default=text("'[]'"),
    ),
    Column(
        "isolation",
        Text,
        CheckConstraint("isolation in ('none', 'vlan')", name="deploy_run_isolation"),
        nullable=False,
        server_default="none",
    ),
    CheckConstraint("num_nulls(task_id, allocation_id, claim_id) in (0, 3)", name="deploy_run_owner_is_whole"),
    CheckConstraint("num_nulls(stop_requested_at, stop_requested_by) in (0, 2)", name="deploy_run_stop_is_whole"),
    CheckConstraint("num_nulls(deploy_epoch, deploy_task_id) in (0, 2)", name="deploy_run_permission_is_whole"),
    CheckConstraint("num_nulls(ended_at, outcome) in (0, 2)", name="deploy_run_end_is_whole"),
    CheckConstraint(
        "num_nulls(waits_for, waits_since, waits_until) = 3 * num_nonnulls(outcome)", name="deploy_run_waits"
    ),
    CheckConstraint("outcome is null or (failure is not null) = (outcome = 'failed')", name="deploy_run_failed_why"),
    Index("one_deploy_run", "node_id", unique=True, postgresql_where=text("ended_at is null")),
    Index("deploy_runs_by_node", "node_id", "id"),
    Index("deploy_runs_open", "waits_until", "id", postgresql_where=text("ended_at is null")),
)
