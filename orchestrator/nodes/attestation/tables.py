"""Tables of attestation: TPMs of nodes, policies of pools, challenges. Revisions 0025 and 0036 explain columns and indexes."""

from __future__ import annotations

from sqlalchemy import Boolean, CheckConstraint, Column, ForeignKey, Integer, LargeBinary, Table, Text, Uuid

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
