"""The schema as SQLAlchemy Core sees it: each noun's `tables.py` adds its tables (docs/reference/sql-functions.md)."""

from __future__ import annotations

from sqlalchemy import Integer, LargeBinary, MetaData, Text, text
from sqlalchemy.dialects.postgresql import DOMAIN, TIMESTAMP
from sqlalchemy.sql.operators import OperatorClass

METADATA = MetaData()
"""Every table of Berth. PostgreSQL names the constraints that have no name here, as it does for migrations/schema."""

TIMESTAMPTZ = TIMESTAMP(timezone=True)


class Domain(DOMAIN):
    """A domain that has every operator; SQLAlchemy's type has none."""

    operator_classes = OperatorClass.ANY


# Domains of several tables that every create writes; those of one table are in its noun's tables.py.
FINITE_TIME = Domain("finite_time", TIMESTAMPTZ, check="isfinite(value)")
GPU_COUNT = Domain("gpu_count", Integer, check="value > 0")
IDEMPOTENCY_KEY = Domain("idempotency_key", Text, check="length(value) between 1 and 255")
SHA256_DIGEST = Domain("sha256_digest", LargeBinary, check="octet_length(value) = 32")

NOW = text("clock_timestamp()")
"""Default of columns that store when a row was written."""
