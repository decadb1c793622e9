"""The schema of Berth, as Alembic migrations that go up and down. `upgrade`, `downgrade` and `current` are the doors."""

from migrations.schema import SchemaProblem, current_revision, downgrade, head_revision, upgrade

__all__ = ["SchemaProblem", "current_revision", "downgrade", "head_revision", "upgrade"]
