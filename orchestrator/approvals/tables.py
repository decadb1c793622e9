"""The table of approvals.

Created by migrations/versions/r0022_approvals.py, which explains columns and indexes; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import Boolean, CheckConstraint, Column, Index, LargeBinary, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

approvals = Table(
    "approvals",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column(
        "action",
        Text,
        CheckConstraint("action in ('allocation.force_cleanup', 'api_key.create', 'api_key.revoke', 'api_key.rotate')"),
        nullable=False,
    ),
    Column("subject_id", Uuid),
    Column("parameters", JSONB, nullable=False, server_default=text("'{}'")),
    Column("secret_hash", LargeBinary, CheckConstraint("octet_length(secret_hash) = 32")),
    Column(
        "state",
        Text,
        CheckConstraint("state in ('pending', 'approved', 'rejected', 'withdrawn', 'expired')"),
        nullable=False,
        server_default="pending",
    ),
    Column("requested_by", Uuid, nullable=False),
    Column("requested_role", Text, nullable=False),
    Column("requested_owner", Text),
    Column("requested_break_glass", Boolean, nullable=False),
    Column("requested_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("decided_by", Uuid),
    Column("decided_role", Text),
    Column("decided_owner", Text),
    Column("decided_break_glass", Boolean),
    Column("decision_reason", Text),
    Column("ended_at", TIMESTAMPTZ),
    Column("result", JSONB),
    Column("waits_for", Text, server_default="approval"),
    Column("waits_since", TIMESTAMPTZ, server_default=NOW),
    Column("waits_until", TIMESTAMPTZ),
    CheckConstraint(
        "case when state = 'pending' then waits_for is not null and waits_since is not null and waits_until is not null"
        " and ended_at is null"
        " else waits_for is null and waits_since is null and waits_until is null and ended_at is not null end",
        name="approval_waits_while_pending",
    ),
    CheckConstraint("(subject_id is null) = (action = 'api_key.create')", name="approval_has_object"),
    CheckConstraint(
        "(decided_by is null) = (decided_role is null) and (decided_by is null) = (decided_break_glass is null)",
        name="approval_decision_is_whole",
    ),
    CheckConstraint(
        "(decided_by is not null) = (state in ('approved', 'rejected', 'withdrawn'))", name="approval_is_decided"
    ),
    CheckConstraint("(result is not null) = (state = 'approved')", name="approval_has_result"),
    CheckConstraint("secret_hash is null or state = 'pending'", name="approval_secret_ends"),
    Index("one_pending_approval", "action", "subject_id", unique=True, postgresql_where=text("state = 'pending'")),
    Index("approvals_waiting", "waits_until", "id", postgresql_where=text("state = 'pending'")),
    Index("approvals_ended", "ended_at", "id", postgresql_where=text("state <> 'pending'")),
)
