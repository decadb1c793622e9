"""Operators reset BMCs."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0058"
down_revision = "0057"
LOCKS = ("bmc_tasks",)

_STATEMENTS = b"""
alter table bmc_tasks drop constraint bmc_task_kind, add constraint bmc_task_kind check (
    kind in ('look', 'rotate', 'reseal', 'power_on', 'power_off', 'power_reset', 'start_deploy', 'end_deploy', 'eject',
        'reach', 'reset_bmc'));
"""


def upgrade() -> None:
    """Add the kind. A process of the version before cannot show a BMC whose newest task is of it."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
