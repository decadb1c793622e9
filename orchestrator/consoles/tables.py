"""The table of console sessions.

Created by migrations/versions/from_0032/r0038_console_sessions.py and from_0057/r0067_consoles_of_machines.py, which explain
columns and indexes; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, Double, ForeignKey, Index, Integer, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

from orchestrator.database.metadata import METADATA, TIMESTAMPTZ

_OPEN = text("ended_at is null")

console_sessions = Table(
    "console_sessions",
    METADATA,
    Column("id", Uuid, primary_key=True, server_default=text("uuidv7()")),
    Column("allocation_id", Uuid, nullable=False),
    Column("tenant_id", Uuid, nullable=False),
    Column("node_id", Uuid, ForeignKey("nodes.id"), nullable=False),
    Column("mode", Text, CheckConstraint("mode in ('attach', 'log')", name="console_mode"), nullable=False),
    Column("opened_by", Text, nullable=False),
    Column("process_id", Uuid, nullable=False),
    Column(
        "address",
        Text,
        CheckConstraint("char_length(address) between 1 and 300", name="console_address_is_bounded"),
        nullable=False,
    ),
    Column(
        "secret_sha256",
        Text,
        CheckConstraint("secret_sha256 ~ '^[0-9a-f]{64}$'", name="console_secret_is_hashed"),
        nullable=False,
    ),
    Column("log_offset", BigInteger, nullable=False, server_default=text("0")),
    Column("log_bytes_max", Integer, nullable=False, server_default=text("0")),
    Column("seconds_max", Double, nullable=False),
    Column("opened_at", TIMESTAMPTZ, nullable=False, server_default=text("clock_timestamp()")),
    Column("seen_at", TIMESTAMPTZ, nullable=False, server_default=text("clock_timestamp()")),
    Column("task_id", Uuid),
    Column("attached_at", TIMESTAMPTZ),
    Column("waits_for", Text, CheckConstraint("waits_for in ('worker', 'node', 'end')", name="console_waits_for")),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    Column("ended_at", TIMESTAMPTZ),
    Column("reason", Text, CheckConstraint("char_length(reason) between 1 and 64", name="console_reason_is_bounded")),
    Column(
        "bytes_to_guest",
        BigInteger,
        CheckConstraint("bytes_to_guest >= 0", name="console_input_is_counted"),
        nullable=False,
        server_default=text("0"),
    ),
    Column(
        "bytes_to_tenant",
        BigInteger,
        CheckConstraint("bytes_to_tenant >= 0", name="console_output_is_counted"),
        nullable=False,
        server_default=text("0"),
    ),
    Column(
        "bytes_dropped",
        BigInteger,
        CheckConstraint("bytes_dropped >= 0", name="console_losses_are_counted"),
        nullable=False,
        server_default=text("0"),
    ),
    Column("site_id", Uuid),
    Column("envelope", JSONB),
    Column("dispatched_at", TIMESTAMPTZ),
    Column("lease_fence", BigInteger),
    CheckConstraint("num_nulls(dispatched_at, lease_fence) in (0, 2)", name="console_dispatched_is_whole"),
    CheckConstraint("site_id is not null or num_nonnulls(envelope, dispatched_at) = 0", name="console_task_of_site"),
    CheckConstraint("dispatched_at is null or task_id is not null", name="console_dispatched_was_signed"),
    CheckConstraint("num_nulls(ended_at, reason) in (0, 2)", name="console_end_is_whole"),
    CheckConstraint("num_nulls(waits_for, waits_since, waits_until) = 3 * num_nonnulls(reason)", name="console_waits"),
    CheckConstraint("attached_at is null or task_id is not null", name="console_attached_by_task"),
    Index(
        "one_attached_console",
        "allocation_id",
        unique=True,
        postgresql_where=text("ended_at is null and mode = 'attach'"),
    ),
    Index("open_consoles", "tenant_id", postgresql_where=_OPEN),
    Index("unsigned_consoles", "opened_at", postgresql_where=text("ended_at is null and task_id is null")),
    Index("ended_consoles", "ended_at", postgresql_where=text("ended_at is not null")),
    Index("consoles_of_process", "process_id", postgresql_where=_OPEN),
    Index(
        "consoles_to_dispatch",
        "site_id",
        "opened_at",
        postgresql_where=text("ended_at is null and dispatched_at is null and site_id is not null"),
    ),
)
