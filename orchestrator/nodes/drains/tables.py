"""The table of drains. Revision 0042 explains its columns."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Table, Text, Uuid, text

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

node_drains = Table(
    "node_drains",
    METADATA,
    Column("node_id", Uuid, ForeignKey("nodes.id"), primary_key=True),
    Column("begun_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("begun_by", Text, nullable=False),
    Column("reason", Text, CheckConstraint("char_length(reason) between 1 and 500", name="drain_reason_is_bounded")),
    Column("deadline", TIMESTAMPTZ, CheckConstraint("isfinite(deadline)", name="drain_deadline_is_finite")),
    Column(
        "at_deadline",
        Text,
        CheckConstraint("at_deadline in ('stay', 'release')", name="drain_at_deadline"),
        nullable=False,
        server_default="stay",
    ),
    Column("overdue_at", TIMESTAMPTZ),
    Column("drained_at", TIMESTAMPTZ),
    Column("waits_for", Text),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    CheckConstraint(
        "deadline is not null or overdue_at is null and at_deadline = 'stay'", name="drain_without_deadline_is_plain"
    ),
    CheckConstraint(
        "case when drained_at is null then waits_for is not distinct from 'claims' and waits_since is not null"
        " and waits_until is not distinct from case when overdue_at is null then deadline end"
        " else num_nonnulls(waits_for, waits_since, waits_until) = 0 end",
        name="drain_waits_for_claims",
    ),
    Index("drains_open", "waits_until", "node_id", postgresql_where=text("drained_at is null")),
)
