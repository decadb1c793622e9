"""The schema of Berth: Alembic revisions, and SQL functions as files. It rolls forward only (docs/decisions)."""

from migrations.upgrading import SchemaProblem, current_revision, head_revision, upgrade

__all__ = ["SchemaProblem", "current_revision", "head_revision", "upgrade"]
