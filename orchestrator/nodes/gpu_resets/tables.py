"""The table of resets of GPUs. Revision 0039 explains columns and indexes."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, SmallInteger, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from orchestrator.database.metadata import METADATA, TIMESTAMPTZ

node_gpu_resets = Table(
    "node_gpu_resets",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("node_id", Uuid, ForeignKey("nodes.id"), nullable=False),
    Column("slots", ARRAY(SmallInteger), nullable=False),
    Column("gpus", ARRAY(Text), nullable=False),
    Column("requested_at", TIMESTAMPTZ, nullable=False, server_default=text("clock_timestamp()")),
    Column("requested_by", Text, nullable=False),
    Column("task_id", Uuid),
    Column("issued_at", TIMESTAMPTZ),
    Column("waits_for", Text),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    Column("ended_at", TIMESTAMPTZ),
    Column("outcome", Text, CheckConstraint("outcome in ('reset', 'failed')", name="gpu_reset_outcome")),
    Column("failure", Text, CheckConstraint("char_length(failure) <= 500", name="gpu_reset_failure_is_bounded")),
    Column("report", JSONB),
    CheckConstraint(
        "cardinality(slots) between 1 and 64 and cardinality(gpus) = cardinality(slots)", name="gpu_reset_names_gpus"
    ),
    CheckConstraint("num_nulls(task_id, issued_at) in (0, 2)", name="gpu_reset_task_is_whole"),
    CheckConstraint("num_nulls(ended_at, outcome) in (0, 2)", name="gpu_reset_end_is_whole"),
    CheckConstraint(
        "num_nulls(waits_for, waits_since, waits_until) = 3 * num_nonnulls(outcome)", name="gpu_reset_waits"
    ),
    CheckConstraint("outcome <> 'reset' or num_nulls(task_id, report) = 0", name="gpu_reset_is_proven"),
    Index("one_gpu_reset", "node_id", unique=True, postgresql_where=text("ended_at is null")),
    Index("gpu_resets_by_node", "node_id", "id"),
)
