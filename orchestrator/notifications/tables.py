"""The table of named subscriptions.

Created by migrations/schema/notifications.sql, which explains columns and indexes; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, PrimaryKeyConstraint, Table, Text, Uuid

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

notification_subscriptions = Table(
    "notification_subscriptions",
    METADATA,
    Column("scope", Uuid, nullable=False),
    Column("name", Text, CheckConstraint("length(name) between 1 and 64"), nullable=False),
    Column("version", BigInteger, CheckConstraint("version >= 0"), nullable=False),
    Column("versions_max", BigInteger, CheckConstraint("versions_max > 0"), nullable=False),
    Column("kept_until", TIMESTAMPTZ, nullable=False),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("updated_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("scope", "name", name="notification_subscription"),
)
