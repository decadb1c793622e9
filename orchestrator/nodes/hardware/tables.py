"""Tables of hardware by serial number: places, history, repairs. Revision 0034 explains columns and indexes."""

from __future__ import annotations

from sqlalchemy import Boolean, CheckConstraint, Column, ForeignKey, Index, SmallInteger, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import ARRAY

from orchestrator.database.metadata import METADATA, TIMESTAMPTZ

hardware_places = Table(
    "hardware_places",
    METADATA,
    Column("serial", Text, primary_key=True),
    Column("node_id", Uuid, ForeignKey("nodes.id"), primary_key=True),
    Column("kind", Text, CheckConstraint("kind in ('gpu', 'disk')", name="hardware_kind_is_known"), nullable=False),
    Column("model", Text),
    Column("slots", ARRAY(SmallInteger), nullable=False),
    Column("positions", ARRAY(Text), nullable=False),
    Column("since", TIMESTAMPTZ, nullable=False, server_default=text("clock_timestamp()")),
    Column("missing_since", TIMESTAMPTZ),
    Column("contested_since", TIMESTAMPTZ),
    CheckConstraint(
        "serial ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{3,63}$' and char_length(model) <= 64 and cardinality(slots) <= 64"
        " and cardinality(positions) between 1 and 64",
        name="hardware_place_is_bounded",
    ),
    CheckConstraint("num_nonnulls(missing_since, contested_since) < 2", name="missing_is_not_contested"),
    Index("hardware_places_by_node", "node_id", "serial"),
    Index("hardware_places_by_kind", "kind", "serial", "node_id"),
    Index("hardware_contested", "serial", "node_id", postgresql_where=text("contested_since is not null")),
    Index("hardware_missing", "serial", "node_id", postgresql_where=text("missing_since is not null")),
)

hardware_history = Table(
    "hardware_history",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("serial", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column(
        "happened",
        Text,
        CheckConstraint(
            "happened in ('seen', 'moved', 'missing', 'contested', 'fault_found', 'fault_reported', 'quarantined',"
            " 'returned', 'repair_opened', 'repair_closed', 'gpu_reset')",
            name="hardware_event_is_known",
        ),
        nullable=False,
    ),
    Column("node_id", Uuid, ForeignKey("nodes.id")),
    Column("slots", ARRAY(SmallInteger), nullable=False),
    Column("happened_at", TIMESTAMPTZ, nullable=False, server_default=text("clock_timestamp()")),
    Column("actor", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("evidence", Text),
    Column("reference", Uuid),
    Column("contested", Boolean, nullable=False, server_default=text("false")),
    CheckConstraint("char_length(detail) <= 1000 and char_length(evidence) <= 4000", name="hardware_event_is_bounded"),
    Index("hardware_history_by_serial", "serial", "id"),
    Index(
        "hardware_history_by_node",
        "node_id",
        "happened_at",
        postgresql_where=text("actor in ('worker:discovery', 'worker:probe')"),
    ),
    Index("hardware_history_by_time", "happened_at"),
)

hardware_repairs = Table(
    "hardware_repairs",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("serial", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("opened_at", TIMESTAMPTZ, nullable=False, server_default=text("clock_timestamp()")),
    Column("opened_by", Text, nullable=False),
    Column("closed_at", TIMESTAMPTZ),
    Column("closed_by", Text),
    Column("result", Text),
    CheckConstraint("num_nulls(closed_at, closed_by, result) in (0, 3)", name="repair_end_is_whole"),
    Index("one_repair", "serial", unique=True, postgresql_where=text("closed_at is null")),
    Index("repairs_by_serial", "serial", "id"),
    Index("repairs_open", "id", postgresql_where=text("closed_at is null")),
    Index("repairs_closed", "closed_at", postgresql_where=text("closed_at is not null")),
)
