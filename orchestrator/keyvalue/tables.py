"""Tables of keys and values, one namespace for each tenant and one for the operators.

Created by migrations/schema/keyvalue.sql, which explains columns and indexes, and later revisions; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Date,
    Index,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Uuid,
    text,
)

from orchestrator.database.metadata import METADATA

kv_namespaces = Table(
    "kv_namespaces",
    METADATA,
    Column("id", Uuid, primary_key=True),
    Column(
        "keys", BigInteger, CheckConstraint("keys >= 0", name="keys_counted"), nullable=False, server_default=text("0")
    ),
    Column(
        "bytes",
        BigInteger,
        CheckConstraint("bytes >= 0", name="bytes_counted"),
        nullable=False,
        server_default=text("0"),
    ),
    Column("last_mark", BigInteger, nullable=False, server_default=text("0")),
    Column("log_day", Date),
    Column("log_bytes", BigInteger, nullable=False, server_default=text("0")),
    postgresql_with={"fillfactor": 50},
)

kv_keys = Table(
    "kv_keys",
    METADATA,
    Column("namespace", Uuid, nullable=False),
    Column(
        "key", LargeBinary, CheckConstraint("octet_length(key) between 1 and 2048", name="key_bounded"), nullable=False
    ),
    Column("value", LargeBinary),
    Column("mark", BigInteger, nullable=False),
    Column("event_id", Uuid, nullable=False),
    PrimaryKeyConstraint("namespace", "key", name="kv_key"),
    Index("kv_keys_by_mark", "namespace", "mark"),
    Index("kv_keys_deleted", "mark", postgresql_where=text("value is null")),
)
