"""Tables of tenants: their quotas, API keys and SSH keys.

Created by migrations/schema/tenants.sql, which explains columns and indexes, and later revisions; a test keeps both equal.
"""

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
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

tenants = Table(
    "tenants",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("name", Text, CheckConstraint("length(name) between 1 and 100"), nullable=False),
    Column(
        "state",
        Text,
        CheckConstraint("state in ('active', 'suspended', 'deleted')"),
        nullable=False,
        server_default="active",
    ),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("row_version", BigInteger, nullable=False, server_default=text("1")),
    Column("depleted_at", TIMESTAMPTZ),
    Column("deleted_at", TIMESTAMPTZ),
    CheckConstraint("(state = 'deleted') = (deleted_at is not null)", name="tenant_deleted_has_time"),
    UniqueConstraint("name", name="tenant_name_unique"),
)

tenant_quotas = Table(
    "tenant_quotas",
    METADATA,
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), primary_key=True),
    Column("gpus_limit", Integer, CheckConstraint("gpus_limit >= 0")),
    Column(
        "gpus_used",
        Integer,
        CheckConstraint("gpus_used >= 0", name="gpus_used_not_negative"),
        nullable=False,
        server_default=text("0"),
    ),
    Column("row_version", BigInteger, nullable=False, server_default=text("1")),
    Column("limits", JSONB, nullable=False, server_default=text("'{}'")),
    postgresql_with={"fillfactor": 50},
)

api_keys = Table(
    "api_keys",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("tenant_id", Uuid, ForeignKey("tenants.id")),
    Column("role", Text, CheckConstraint("role in ('tenant', 'admin')"), nullable=False),
    Column("name", Text, CheckConstraint("length(name) between 1 and 100"), nullable=False),
    Column("prefix", Text, nullable=False),
    Column("secret_hash", LargeBinary, CheckConstraint("octet_length(secret_hash) = 32"), nullable=False),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("revoked_at", TIMESTAMPTZ),
    Column("access_role", Text, nullable=False, server_default="admin"),
    Column("expires_at", TIMESTAMPTZ),
    Column("owner", Text, CheckConstraint("length(owner) between 1 and 100", name="api_keys_owner_check")),
    Column("last_used_at", TIMESTAMPTZ),
    Column("replaced_by", Uuid),
    Column("break_glass", Boolean, nullable=False, server_default=text("false")),
    Column("break_glass_event_at", TIMESTAMPTZ),
    Column("scopes", ARRAY(Text)),
    CheckConstraint(
        "cardinality(scopes) between 1 and 64 and array_position(scopes, null) is null"
        " and array_to_string(scopes, ' ') ~ '^[a-z][a-z-]{0,39}:(read|write)( [a-z][a-z-]{0,39}:(read|write))*$'",
        name="api_key_scopes_are_known",
    ),
    CheckConstraint("not break_glass or tenant_id is null", name="api_key_break_glass_is_operators"),
    CheckConstraint(
        "case role when 'tenant' then access_role in ('viewer', 'member', 'admin', 'billing')"
        " else access_role in ('viewer', 'support', 'fleet', 'finance', 'admin') end",
        name="api_key_access_role_fits",
    ),
    CheckConstraint("(role = 'tenant') = (tenant_id is not null)", name="api_key_role_has_scope"),
    UniqueConstraint("secret_hash", name="api_key_hash_unique"),
    Index("api_keys_by_tenant", "tenant_id", "id"),
)

ssh_keys = Table(
    "ssh_keys",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), nullable=False),
    Column("name", Text, CheckConstraint("length(name) between 1 and 100"), nullable=False),
    Column("public_key", Text, CheckConstraint("length(public_key) <= 16384"), nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    UniqueConstraint("tenant_id", "name", name="ssh_key_name_unique"),
    UniqueConstraint("tenant_id", "fingerprint", name="ssh_key_fingerprint_unique"),
    Index("ssh_keys_by_public_key", "public_key", postgresql_using="hash"),
)

_ROLES = "role in ('viewer', 'member', 'admin', 'billing')"

tenant_members = Table(
    "tenant_members",
    METADATA,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), nullable=False),
    Column(
        "subject",
        Text,
        CheckConstraint("char_length(subject) between 1 and 255", name="member_subject_is_bounded"),
        nullable=False,
    ),
    Column("role", Text, CheckConstraint(_ROLES, name="member_role"), nullable=False),
    Column("name", Text, CheckConstraint("char_length(name) between 1 and 100", name="member_name_is_bounded")),
    Column("invited_by", Text, nullable=False),
    Column("joined_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Index("tenant_members_by_tenant", "tenant_id", "id"),
)

tenant_invitations = Table(
    "tenant_invitations",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("tenant_id", Uuid, ForeignKey("tenants.id"), nullable=False),
    Column("role", Text, CheckConstraint(_ROLES, name="invitation_role"), nullable=False),
    Column("name", Text, CheckConstraint("char_length(name) between 1 and 100", name="invitation_name_is_bounded")),
    Column(
        "token_hash",
        LargeBinary,
        CheckConstraint("octet_length(token_hash) = 32", name="invitation_token_hash_has_32_bytes"),
        nullable=False,
    ),
    Column("created_by", Text, nullable=False),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("expires_at", TIMESTAMPTZ, nullable=False),
    Column("accepted_at", TIMESTAMPTZ),
    Column("accepted_by", Uuid),
    Column("revoked_at", TIMESTAMPTZ),
    UniqueConstraint("token_hash", name="invitation_token_unique"),
    CheckConstraint("num_nulls(accepted_at, accepted_by) in (0, 2)", name="invitation_acceptance_is_whole"),
    CheckConstraint("num_nulls(accepted_at, revoked_at) > 0", name="invitation_ends_once"),
    Index("tenant_invitations_by_tenant", "tenant_id", "id"),
)
