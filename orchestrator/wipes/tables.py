"""The tables of wipe certificates.

Created by migrations/versions/r0028_wipe_certificates.py, which explains columns and indexes; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    LargeBinary,
    Table,
    UniqueConstraint,
    Uuid,
)
from sqlalchemy.dialects.postgresql import JSONB

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

wipe_key_sets = Table(
    "wipe_key_sets",
    METADATA,
    Column("sha256", LargeBinary, primary_key=True),
    Column("envelope", JSONB, nullable=False),
    Column("first_used_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    CheckConstraint("octet_length(sha256) = 32", name="wipe_key_set_digest"),
)

wipe_chains = Table(
    "wipe_chains",
    METADATA,
    Column("node_id", Uuid, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("sha256", LargeBinary, nullable=False),
    CheckConstraint("number > 0 and octet_length(sha256) = 32", name="wipe_chain_head"),
)

wipe_certificates = Table(
    "wipe_certificates",
    METADATA,
    Column("allocation_id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, nullable=False),
    Column("node_id", Uuid, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("sha256", LargeBinary, nullable=False),
    Column("previous_sha256", LargeBinary),
    Column("statement", JSONB, nullable=False),
    Column("countersignature", JSONB, nullable=False),
    Column("key_set_sha256", LargeBinary, ForeignKey("wipe_key_sets.sha256")),
    Column("issued_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    UniqueConstraint("node_id", "number", name="wipe_certificate_number"),
    CheckConstraint(
        "number > 0 and octet_length(sha256) = 32 and (number = 1) = (previous_sha256 is null)",
        name="wipe_certificate_link",
    ),
)
