"""Maintenance windows update firmware through BMCs."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0062"
down_revision = "0061"
LOCKS = ("bmc_tasks", "maintenance_tasks")

_STATEMENTS = b"""
alter table bmc_tasks drop constraint bmc_task_kind, add constraint bmc_task_kind check (
    kind in ('look', 'rotate', 'reseal', 'power_on', 'power_off', 'power_reset', 'start_deploy', 'end_deploy', 'eject',
        'reach', 'reset_bmc', 'move_ports', 'check_ports', 'firmware')),
    add column progress jsonb constraint bmc_task_progress_is_bounded check (octet_length(progress::text) <= 131072),
    add column result jsonb constraint bmc_task_result_is_bounded check (octet_length(result::text) <= 65536),
    add constraint bmc_task_updates_firmware check (kind = 'firmware' or num_nonnulls(progress, result) = 0);
comment on column bmc_tasks.progress is 'Of an update of firmware: what was stored before it was sent; null: nothing was sent.';
comment on column bmc_tasks.result is 'Of an update of firmware: what the agent has read before and after it.';
alter table maintenance_tasks drop constraint maintenance_task_kind, add constraint maintenance_task_kind check (
    kind in ('health_probe', 'burn_in', 'gpu_reset', 'plugin', 'firmware')),
    add column firmware jsonb constraint maintenance_task_firmware_is_bounded check (octet_length(firmware::text) <= 8192),
    add constraint maintenance_task_names_firmware check ((kind = 'firmware') = (firmware is not null));
comment on column maintenance_tasks.firmware is 'Of the kind `firmware`: what is written where.';
"""


def upgrade() -> None:
    """Add the kind. A process of the version before cannot show a window or a BMC that has it, and leaves its task alone."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
