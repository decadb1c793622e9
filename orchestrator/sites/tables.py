"""The tables of sites, their agents, and BMCs. Revisions 0046, 0049, 0051 and 0067 explain them; a test keeps both equal."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

sites = Table(
    "sites",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("name", Text, CheckConstraint("name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'", name="site_name"), nullable=False),
    Column(
        "recovery_key",
        LargeBinary,
        CheckConstraint("octet_length(recovery_key) = 32", name="recovery_key_is_x25519"),
        nullable=False,
    ),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("lease_fence", BigInteger, nullable=False, server_default=text("0")),
    Column("lease_agent", Uuid),
    Column("lease_run", Uuid),
    Column("lease_until", TIMESTAMPTZ),
    UniqueConstraint("name", name="site_name_unique"),
    CheckConstraint("num_nulls(lease_agent, lease_run, lease_until) in (0, 3)", name="site_lease_is_whole"),
)  # fmt: skip

site_agents = Table(
    "site_agents",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("site_id", Uuid, ForeignKey("sites.id"), nullable=False),
    Column(
        "name",
        Text,
        CheckConstraint("name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'", name="site_agent_name"),
        nullable=False,
    ),
    Column(
        "state",
        Text,
        CheckConstraint("state in ('registered', 'active', 'retired')", name="site_agent_state"),
        nullable=False,
        server_default="registered",
    ),
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("hardware_id", Text),
    Column("enrolled_at", TIMESTAMPTZ),
    Column("identity_conflict_at", TIMESTAMPTZ),
    Column("sealing_key", LargeBinary, CheckConstraint("octet_length(sealing_key) = 32", name="sealing_key_is_x25519")),
    Column("sealing_key_epoch", BigInteger),
    Column(
        "agent_version", Text, CheckConstraint("char_length(agent_version) <= 64", name="site_agent_version_is_bounded")
    ),
    Column("last_seen_at", TIMESTAMPTZ),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("row_version", BigInteger, nullable=False, server_default=text("1")),
    UniqueConstraint("site_id", "name", name="site_agent_name_unique"),
    CheckConstraint("(sealing_key is null) = (sealing_key_epoch is null)", name="sealing_key_has_epoch"),
)

site_agent_tokens = Table(
    "site_agent_tokens",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("agent_id", Uuid, ForeignKey("site_agents.id"), nullable=False),
    Column(
        "token_hash",
        LargeBinary,
        CheckConstraint("octet_length(token_hash) = 32", name="site_agent_token_is_sha256"),
        nullable=False,
    ),
    Column("hardware_id", Text),
    Column("created_by", Uuid, nullable=False),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("expires_at", TIMESTAMPTZ, nullable=False),
    Column("used_at", TIMESTAMPTZ),
    UniqueConstraint("token_hash", name="site_agent_token_unique"),
    Index("site_agent_tokens_by_agent", "agent_id"),
)

site_agent_certificates = Table(
    "site_agent_certificates",
    METADATA,
    Column("serial", Text, primary_key=True),
    Column("agent_id", Uuid, ForeignKey("site_agents.id"), nullable=False),
    Column("agent_epoch", BigInteger, nullable=False),
    Column(
        "key_sha256",
        LargeBinary,
        CheckConstraint("octet_length(key_sha256) = 32", name="site_agent_key_is_sha256"),
        nullable=False,
    ),
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
        CheckConstraint("octet_length(authority_key_sha256) = 32", name="site_agent_authority_is_sha256"),
    ),
    Index("site_agent_certificates_by_agent", "agent_id"),
    Index("one_successor_of_agent", "predecessor", unique=True, postgresql_where=text("predecessor is not null")),
)

site_agent_certificate_requests = Table(
    "site_agent_certificate_requests",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("agent_id", Uuid, ForeignKey("site_agents.id"), nullable=False),
    Column("agent_epoch", BigInteger, nullable=False),
    Column("predecessor", Text),
    Column(
        "key_sha256",
        LargeBinary,
        CheckConstraint("octet_length(key_sha256) = 32", name="site_agent_request_key_is_sha256"),
        nullable=False,
    ),
    Column("csr_pem", Text, nullable=False),
    Column("request_id", Text),
    Column("requested_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("serial", Text),
    Column("refusal", Text),
    CheckConstraint("serial is null or refusal is null", name="site_agent_issued_or_refused"),
    UniqueConstraint(
        "agent_id",
        "agent_epoch",
        "predecessor",
        name="one_request_for_a_link_of_agent",
        postgresql_nulls_not_distinct=True,
    ),
    Index("site_agent_requests_pending", "id", postgresql_where=text("serial is null and refusal is null")),
)

node_bmcs = Table(
    "node_bmcs",
    METADATA,
    Column("node_id", Uuid, ForeignKey("nodes.id"), primary_key=True),
    Column("site_id", Uuid, ForeignKey("sites.id"), nullable=False),
    Column(
        "url",
        Text,
        CheckConstraint("url ~ '^https://[^/?#@[:space:]]{1,255}$'", name="bmc_url"),
        nullable=False,
    ),
    Column(
        "certificate_sha256",
        LargeBinary,
        CheckConstraint("octet_length(certificate_sha256) = 32", name="bmc_certificate_is_sha256"),
        nullable=False,
    ),
    Column("username", Text, CheckConstraint("username ~ '^[!-~]{1,64}$'", name="bmc_username"), nullable=False),
    Column("system_id", Text, CheckConstraint("system_id ~ '^[!-~]{1,128}$'", name="bmc_system_id")),
    Column(
        "generation", BigInteger, CheckConstraint("generation > 0", name="bmc_generation_is_positive"), nullable=False
    ),
    Column("pending_generation", BigInteger),
    Column("changed_at", TIMESTAMPTZ, nullable=False, server_default=text("clock_timestamp()")),
    Column("changed_by", Text, nullable=False),
    Column("power_state", Text),
    Column("inventory", JSONB),
    Column("looked_at", TIMESTAMPTZ),
    Column("row_version", BigInteger, nullable=False, server_default=text("1")),
    Column("answered_at", TIMESTAMPTZ),
    Column("silent_because", Text, CheckConstraint("char_length(silent_because) <= 64", name="bmc_silence_is_bounded")),
    Column("rotates_at_release", Boolean, nullable=False, server_default=text("true")),
    Column(
        "console_host_key",
        Text,
        CheckConstraint(
            "char_length(console_host_key) <= 2048 and console_host_key ~"
            " '^(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]+={0,2}$'",
            name="bmc_console_host_key",
        ),
    ),
    Column("console_shared", Boolean, nullable=False, server_default=text("false")),
    CheckConstraint("pending_generation > generation", name="bmc_pending_is_next"),
    CheckConstraint("num_nulls(power_state, inventory, looked_at) in (0, 3)", name="bmc_look_is_whole"),
    Index("bmcs_by_site", "site_id", "node_id"),
    postgresql_with={"fillfactor": 70},
)

bmc_credentials = Table(
    "bmc_credentials",
    METADATA,
    Column("node_id", Uuid, ForeignKey("node_bmcs.node_id"), primary_key=True),
    Column("generation", BigInteger, primary_key=True),
    Column("recipient", Uuid, primary_key=True),
    Column(
        "sealed",
        Text,
        CheckConstraint("char_length(sealed) between 1 and 1024", name="sealed_is_bounded"),
        nullable=False,
    ),
    Index("bmc_credentials_by_recipient", "recipient"),
)

bmc_tasks = Table(
    "bmc_tasks",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("node_id", Uuid, ForeignKey("node_bmcs.node_id"), nullable=False),
    Column("site_id", Uuid, nullable=False),
    Column(
        "kind",
        Text,
        CheckConstraint(
            "kind in ('look', 'rotate', 'reseal', 'power_on', 'power_off', 'power_reset', 'start_deploy', 'end_deploy',"
            " 'eject', 'reach', 'reset_bmc', 'move_ports', 'check_ports', 'firmware')",
            name="bmc_task_kind",
        ),
        nullable=False,
    ),
    Column("requested_at", TIMESTAMPTZ, nullable=False, server_default=text("clock_timestamp()")),
    Column("requested_by", Text, nullable=False),
    Column("fence", BigInteger),
    Column("envelope", JSONB),
    Column("issued_at", TIMESTAMPTZ),
    Column("dispatched_at", TIMESTAMPTZ),
    Column("dispatch_count", Integer, nullable=False, server_default=text("0")),
    Column("lease_fence", BigInteger),
    Column("waits_for", Text),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    Column("ended_at", TIMESTAMPTZ),
    Column("outcome", Text, CheckConstraint("outcome in ('completed', 'failed', 'unknown')", name="bmc_task_outcome")),
    Column("failure", Text, CheckConstraint("char_length(failure) <= 500", name="bmc_task_failure_is_bounded")),
    Column("power_state", Text),
    Column(
        "progress",
        JSONB,
        CheckConstraint("octet_length(progress::text) <= 131072", name="bmc_task_progress_is_bounded"),
    ),
    Column("result", JSONB, CheckConstraint("octet_length(result::text) <= 65536", name="bmc_task_result_is_bounded")),
    CheckConstraint("kind = 'firmware' or num_nonnulls(progress, result) = 0", name="bmc_task_updates_firmware"),
    CheckConstraint("num_nulls(fence, envelope, issued_at) in (0, 3)", name="bmc_task_issued_is_whole"),
    CheckConstraint("num_nulls(dispatched_at, lease_fence) in (0, 2)", name="bmc_task_dispatched_is_whole"),
    CheckConstraint("dispatched_at is null or issued_at is not null", name="bmc_task_dispatched_was_issued"),
    CheckConstraint("num_nulls(ended_at, outcome) in (0, 2)", name="bmc_task_end_is_whole"),
    CheckConstraint(
        "num_nulls(waits_for, waits_since, waits_until) = 3 * num_nonnulls(outcome)", name="bmc_task_waits"
    ),
    CheckConstraint("(failure is null) = (outcome is null or outcome = 'completed')", name="bmc_task_failed_why"),
    Index("one_bmc_task", "node_id", unique=True, postgresql_where=text("ended_at is null")),
    Index("bmc_tasks_by_node", "node_id", "requested_at"),
    Index(
        "bmc_tasks_issued",
        "site_id",
        "issued_at",
        "id",
        postgresql_where=text("ended_at is null and issued_at is not null"),
    ),
    Index("bmc_tasks_open", "waits_until", "id", postgresql_where=text("ended_at is null")),
    Index(
        "bmc_tasks_requested",
        "requested_at",
        "id",
        postgresql_where=text("ended_at is null and issued_at is null"),
    ),
    postgresql_with={"fillfactor": 70},
)
