"""The tables of restores. Revision 0049 explains columns and indexes; a test keeps both equal."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Table, Text, Uuid, text

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
