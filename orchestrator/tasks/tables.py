"""The table of tasks: signed instructions for nodes.

Created by migrations/schema/tasks.sql, which explains columns and indexes; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

node_tasks = Table(
    "node_tasks",
    METADATA,
    Column("id", Uuid, primary_key=True),
    Column("node_id", Uuid, nullable=False),
    Column("node_epoch", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("allocation_id", Uuid),
    Column("fence", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False, server_default=text("1")),
    Column(
        "state",
        Text,
        CheckConstraint("state in ('queued', 'dispatched', 'completed', 'failed', 'expired', 'superseded')"),
        nullable=False,
        server_default="queued",
    ),
    Column("envelope", JSONB, nullable=False),
    Column("notify", Text),
    Column("not_before", TIMESTAMPTZ, nullable=False),
    Column("expires_at", TIMESTAMPTZ, nullable=False),
    Column("queued_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("dispatched_at", TIMESTAMPTZ),
    Column("dispatch_count", Integer, nullable=False, server_default=text("0")),
    Column("finished_at", TIMESTAMPTZ),
    Column("result", JSONB),
    Column("failure_code", Text),
    Column("failure_detail", Text),
    Column("orphan_id", Uuid),
    Column("deploy_epoch", BigInteger),
    CheckConstraint("(state in ('queued', 'dispatched')) = (finished_at is null)", name="task_finished_has_time"),
    CheckConstraint("state <> 'failed' or failure_code is not null", name="task_failed_has_code"),
    CheckConstraint("state <> 'completed' or result is not null", name="task_completed_has_result"),
    CheckConstraint("orphan_id is null or allocation_id is null", name="task_for_one"),
    Index("tasks_queued", "node_id", "queued_at", "id", postgresql_where=text("state = 'queued'")),
    Index("tasks_dispatched", "node_id", postgresql_where=text("state = 'dispatched'")),
    Index("tasks_by_allocation", "allocation_id", "queued_at"),
    Index("one_live_task", "allocation_id", unique=True, postgresql_where=text("state in ('queued', 'dispatched')")),
    Index("tasks_by_orphan", "orphan_id", "fence", postgresql_where=text("orphan_id is not null")),
    Index(
        "one_live_task_of_orphan",
        "orphan_id",
        unique=True,
        postgresql_where=text("orphan_id is not null and state in ('queued', 'dispatched')"),
    ),
    Index(
        "one_live_task_of_deploy_system",
        "node_id",
        "deploy_epoch",
        unique=True,
        postgresql_where=text("deploy_epoch is not null and state in ('queued', 'dispatched')"),
    ),
    Index("tasks_expiring", "expires_at", postgresql_where=text("state in ('queued', 'dispatched')")),
    postgresql_with={"fillfactor": 60, "autovacuum_vacuum_scale_factor": 0.02, "autovacuum_vacuum_threshold": 500},
)
