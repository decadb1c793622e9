"""The tables of maintenance windows.

Revisions 0026, 0045 and 0062 create them and explain columns and indexes; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import INT8MULTIRANGE, JSONB

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

maintenance_windows = Table(
    "maintenance_windows",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("starts_at", TIMESTAMPTZ, nullable=False),
    Column("ends_at", TIMESTAMPTZ, nullable=False),
    Column(
        "reason",
        Text,
        CheckConstraint("char_length(reason) between 1 and 500", name="maintenance_reason_is_bounded"),
        nullable=False,
    ),
    Column(
        "state",
        Text,
        CheckConstraint("state in ('scheduled', 'active', 'ended', 'cancelled')", name="maintenance_window_state"),
        nullable=False,
        server_default="scheduled",
    ),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("started_at", TIMESTAMPTZ),
    Column("ended_at", TIMESTAMPTZ),
    Column("waits_for", Text),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    CheckConstraint(
        "starts_at < ends_at and isfinite(starts_at) and isfinite(ends_at)", name="maintenance_window_is_finite"
    ),
    CheckConstraint(
        "case when state = 'cancelled' then started_at is null else (started_at is null) = (state = 'scheduled') end",
        name="maintenance_started",
    ),
    CheckConstraint(
        "case when state = 'scheduled' then waits_for = 'start' and waits_since is not null and waits_until = starts_at"
        " and ended_at is null"
        " when state = 'active' then waits_for = 'end' and waits_since is not null and waits_until = ends_at"
        " and ended_at is null"
        " else waits_for is null and waits_since is null and waits_until is null and ended_at is not null end",
        name="maintenance_waits_while_open",
    ),
    Index("maintenance_windows_due", "waits_until", "id", postgresql_where=text("waits_until is not null")),
    Index("maintenance_windows_over", "ended_at", "id", postgresql_where=text("ended_at is not null")),
)

maintenance_units = Table(
    "maintenance_units",
    METADATA,
    Column("window_id", Uuid, ForeignKey("maintenance_windows.id"), primary_key=True),
    Column("node_id", Uuid, primary_key=True),
    Column(
        "units",
        INT8MULTIRANGE,
        CheckConstraint("not isempty(units)", name="maintenance_units_not_empty"),
        nullable=False,
    ),
    Column(
        "planned",
        INT8MULTIRANGE,
        CheckConstraint("units @> planned", name="maintenance_planned_is_part"),
        nullable=False,
        server_default=text("'{}'"),
    ),
    Index("maintenance_planned", "node_id", postgresql_where=text("not isempty(planned)")),
)

maintenance_tasks = Table(
    "maintenance_tasks",
    METADATA,
    Column("window_id", Uuid, ForeignKey("maintenance_windows.id"), primary_key=True),
    Column("node_id", Uuid, primary_key=True),
    Column(
        "kind",
        Text,
        CheckConstraint(
            "kind in ('health_probe', 'burn_in', 'gpu_reset', 'plugin', 'firmware')", name="maintenance_task_kind"
        ),
        nullable=False,
    ),
    Column(
        "plugin", Text, CheckConstraint("plugin ~ '^[a-z0-9][a-z0-9._-]{0,31}$'", name="maintenance_task_plugin_name")
    ),
    Column(
        "seconds_max",
        Integer,
        CheckConstraint("seconds_max between 1 and 14400", name="maintenance_task_is_bounded"),
        nullable=False,
    ),
    Column("begins_at", TIMESTAMPTZ, nullable=False),
    Column(
        "state",
        Text,
        CheckConstraint(
            "state in ('waiting', 'running', 'completed', 'failed', 'interrupted', 'not_run')",
            name="maintenance_task_state",
        ),
        nullable=False,
        server_default="waiting",
    ),
    Column("task_id", Uuid),
    Column("begun_at", TIMESTAMPTZ),
    Column("waits_for", Text),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    Column("ended_at", TIMESTAMPTZ),
    Column("failure", Text, CheckConstraint("char_length(failure) <= 500", name="maintenance_task_failure_is_bounded")),
    Column(
        "evidence", Text, CheckConstraint("char_length(evidence) <= 1000", name="maintenance_task_evidence_is_bounded")
    ),
    Column(
        "firmware",
        JSONB,
        CheckConstraint("octet_length(firmware::text) <= 8192", name="maintenance_task_firmware_is_bounded"),
    ),
    CheckConstraint("(kind = 'plugin') = (plugin is not null)", name="maintenance_task_names_plugin"),
    CheckConstraint("(kind = 'firmware') = (firmware is not null)", name="maintenance_task_names_firmware"),
    CheckConstraint("num_nulls(task_id, begun_at) in (0, 2)", name="maintenance_task_is_whole"),
    CheckConstraint(
        "case when state = 'waiting' then task_id is null else state = 'not_run' or task_id is not null end",
        name="maintenance_task_has_begun",
    ),
    CheckConstraint(
        "(failure is not null) = (state in ('failed', 'interrupted', 'not_run'))", name="maintenance_task_failed_why"
    ),
    CheckConstraint(
        "case when state = 'waiting' then coalesce(waits_for, '') = 'units' and num_nulls(waits_since, waits_until) = 0"
        " and ended_at is null"
        " when state = 'running' then coalesce(waits_for, '') = 'node' and num_nulls(waits_since, waits_until) = 0"
        " and ended_at is null"
        " else num_nonnulls(waits_for, waits_since, waits_until) = 0 and ended_at is not null end",
        name="maintenance_task_waits",
    ),
    Index("maintenance_tasks_open", "begins_at", "window_id", "node_id", postgresql_where=text("ended_at is null")),
    Index("one_maintenance_task", "node_id", unique=True, postgresql_where=text("state = 'running'")),
    Index("maintenance_tasks_by_node", "node_id", "begun_at", postgresql_where=text("task_id is not null")),
)
