"""The tables of maintenance windows.

Created by migrations/versions/r0026_maintenance_windows.py, which explains columns and indexes; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import INT8MULTIRANGE

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
