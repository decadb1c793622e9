"""Tables of attestation: TPMs of nodes, policies of pools, challenges, attestations on demand and accepted PCRs.

Revisions 0025, 0036 and 0057 explain columns and indexes.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from orchestrator.database.metadata import METADATA, TIMESTAMPTZ

node_tpms = Table(
    "node_tpms",
    METADATA,
    Column("node_id", Uuid, ForeignKey("nodes.id"), primary_key=True),
    Column(
        "policy",
        Text,
        CheckConstraint("policy in ('off', 'offered', 'required')", name="node_tpm_policy"),
        nullable=False,
        server_default="offered",
    ),
    Column("ek_sha256", LargeBinary, CheckConstraint("octet_length(ek_sha256) = 32", name="node_tpm_ek_is_sha256")),
    Column("ek_public", LargeBinary),
    Column("ak_public", LargeBinary),
    Column("attested_at", TIMESTAMPTZ),
    Column("policy_is_set", Boolean, nullable=False, server_default="false"),
    CheckConstraint(
        "(ek_public is null) = (ak_public is null) and (ak_public is null or ek_sha256 is not null)",
        name="node_tpm_keys_are_complete",
    ),
)

pool_attestations = Table(
    "pool_attestations",
    METADATA,
    Column("pool_id", Integer, ForeignKey("pools.id"), primary_key=True),
    Column(
        "policy",
        Text,
        CheckConstraint("policy in ('off', 'offered', 'required')", name="pool_attestation_policy"),
        nullable=False,
    ),
)

attestation_challenges = Table(
    "attestation_challenges",
    METADATA,
    Column("node_id", Uuid, ForeignKey("nodes.id"), primary_key=True),
    Column(
        "secret",
        LargeBinary,
        CheckConstraint("octet_length(secret) = 32", name="attestation_secret_has_32_bytes"),
        nullable=False,
    ),
    Column("ek_public", LargeBinary, nullable=False),
    Column("ak_public", LargeBinary, nullable=False),
    Column("expires_at", TIMESTAMPTZ, nullable=False),
)

node_attestations = Table(
    "node_attestations",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("node_id", Uuid, ForeignKey("nodes.id"), nullable=False),
    Column(
        "nonce",
        LargeBinary,
        CheckConstraint("octet_length(nonce) = 32", name="attestation_nonce_has_32_bytes"),
        nullable=False,
    ),
    Column("requested_at", TIMESTAMPTZ, nullable=False, server_default=text("clock_timestamp()")),
    Column("requested_by", Text, nullable=False),
    Column("task_id", Uuid),
    Column("issued_at", TIMESTAMPTZ),
    Column("deploy_run_id", Uuid),
    Column("waits_for", Text),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    Column("ended_at", TIMESTAMPTZ),
    Column("verdict", Text, CheckConstraint("verdict in ('passed', 'failed')", name="attestation_verdict")),
    Column("code", Text, CheckConstraint("char_length(code) between 1 and 64", name="attestation_code_is_bounded")),
    Column(
        "detail",
        Text,
        CheckConstraint("char_length(detail) <= 500", name="attestation_detail_is_bounded"),
        nullable=False,
        server_default="",
    ),
    Column("pcrs", ARRAY(Text), CheckConstraint("cardinality(pcrs) = 8", name="attestation_pcrs_are_eight")),
    Column(
        "compared",
        ARRAY(Text),
        CheckConstraint("compared <@ array['pcrs', 'inspection', 'firmware_list']", name="attestation_compared"),
        nullable=False,
        server_default="{}",
    ),
    Column(
        "evidence",
        JSONB,
        CheckConstraint("octet_length(evidence::text) <= 131072", name="attestation_evidence_is_bounded"),
    ),
    CheckConstraint("num_nulls(task_id, issued_at) in (0, 2)", name="attestation_task_is_whole"),
    CheckConstraint("num_nulls(task_id, deploy_run_id) > 0", name="attestation_has_one_answerer"),
    CheckConstraint("num_nulls(ended_at, verdict) in (0, 2)", name="attestation_end_is_whole"),
    CheckConstraint(
        "num_nulls(waits_for, waits_since, waits_until) = 3 * num_nonnulls(verdict)", name="attestation_waits"
    ),
    CheckConstraint("coalesce(verdict = 'failed', false) = (code is not null)", name="attestation_failure_has_code"),
    CheckConstraint("verdict <> 'passed' or num_nulls(pcrs, evidence) = 0", name="attestation_is_proven"),
    Index("one_attestation", "node_id", unique=True, postgresql_where=text("ended_at is null")),
    Index("attestations_by_node", "node_id", "id"),
)

node_accepted_pcrs = Table(
    "node_accepted_pcrs",
    METADATA,
    Column("node_id", Uuid, ForeignKey("nodes.id"), primary_key=True),
    Column(
        "pcrs", ARRAY(Text), CheckConstraint("cardinality(pcrs) = 8", name="accepted_pcrs_are_eight"), nullable=False
    ),
    Column("attestation_id", Uuid, nullable=False),
    Column("accepted_at", TIMESTAMPTZ, nullable=False, server_default=text("clock_timestamp()")),
    Column("accepted_by", Text, nullable=False),
)
