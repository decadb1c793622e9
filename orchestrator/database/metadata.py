"""The schema as SQLAlchemy Core sees it: each noun's `tables.py` adds its tables (docs/reference/sql-functions.md)."""

from __future__ import annotations

from sqlalchemy import MetaData, text
from sqlalchemy.dialects.postgresql import TIMESTAMP

METADATA = MetaData()
"""Every table of Berth. PostgreSQL names the constraints that have no name here, as it does for migrations/schema."""

TIMESTAMPTZ = TIMESTAMP(timezone=True)

NOW = text("clock_timestamp()")
"""Default of columns that store when a row was written."""
