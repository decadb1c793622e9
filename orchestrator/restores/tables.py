"""The tables of restores. Revisions 0050, 0053 and 0059 explain columns and indexes; a test keeps both equal."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, LargeBinary, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

restores = Table(
    "restores",
    METADATA,
    Column("epoch", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("begun_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("written_by", Text, nullable=False),
    Column("leader_id", Text, nullable=False),
    Column("head_version", BigInteger, CheckConstraint("head_version >= 0", name="restore_head"), nullable=False),
    Column("last_event_at", TIMESTAMPTZ),
    Column("raised_at", TIMESTAMPTZ),
    Column("closed_at", TIMESTAMPTZ),
    Column("exported_at", TIMESTAMPTZ),
    Column("export_events", BigInteger),
    Column("export_sha256", LargeBinary),
    Column("without_export", Text),
    CheckConstraint(
        "(exported_at is null) = (export_events is null) and (exported_at is null) = (export_sha256 is null)"
        " and (export_events is null or export_events >= 0) and (export_sha256 is null or length(export_sha256) = 32)",
        name="restore_export",
    ),
    CheckConstraint(
        "without_export <> '' and (without_export is null or exported_at is null)", name="restore_without_export"
    ),
    Index("one_open_restore", text("(closed_at is null)"), unique=True, postgresql_where=text("closed_at is null")),
)

awaited_inventories = Table(
    "awaited_inventories",
    METADATA,
    Column("node_id", Uuid, ForeignKey("nodes.id"), primary_key=True),
    Column("epoch", Uuid, ForeignKey("restores.epoch"), nullable=False),
    Column("since", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Index("awaited_inventories_of_restore", "epoch"),
)

restore_replays = Table(
    "restore_replays",
    METADATA,
    Column("epoch", Uuid, ForeignKey("restores.epoch"), primary_key=True),
    Column(
        "kind",
        Text,
        CheckConstraint(
            "kind in ('release', 'cancel', 'api_key', 'certificates', 'adopt', 'site_agent', 'adopt_agent',"
            " 'bmc_password', 'member', 'invitation')",
            name="restore_replay_kind",
        ),
        primary_key=True,
    ),
    Column("detail", JSONB),
    Column("subject_id", Uuid, primary_key=True),
    Column("version", BigInteger, CheckConstraint("version > 0", name="restore_replay_version"), nullable=False),
    Column("ended_at", TIMESTAMPTZ, nullable=False),
    Column("since", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("done_at", TIMESTAMPTZ),
    Column("outcome", Text),
    CheckConstraint("(done_at is null) = (outcome is null)", name="restore_replay_done"),
    Index("restore_replays_left", "kind", "subject_id", postgresql_where=text("done_at is null")),
)
