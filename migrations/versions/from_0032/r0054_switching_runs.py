"""Runs that switch a rented machine for its tenant."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0054"
down_revision = "0053"
LOCKS = ("deploy_runs",)

_STATEMENTS = b"""
alter table deploy_runs drop constraint deploy_run_kind,
    add constraint deploy_run_kind check (kind in ('inspect', 'wipe', 'deploy', 'stop', 'start', 'reboot'));
"""


def upgrade() -> None:
    """Add the kinds. Processes of the version before leave a run of a kind that they do not know alone."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
