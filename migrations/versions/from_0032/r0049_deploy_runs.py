"""Tasks about BMCs that switch machines, and the power state that each read last."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0049"
down_revision = "0048"
LOCKS = ("bmc_tasks",)

_STATEMENTS = b"""
alter table bmc_tasks drop constraint bmc_task_kind, add constraint bmc_task_kind check (
    kind in ('look', 'rotate', 'reseal', 'power_on', 'power_off', 'power_reset'));
alter table bmc_tasks add column power_state text;
comment on column bmc_tasks.power_state is 'As the BMC reported it at the end of the task; null: it was not read.';
"""


def upgrade() -> None:
    """Allow more kinds. Processes of the version before request none of them; their agents refuse such a task by its type."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
