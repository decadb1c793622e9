"""Rescue systems on rented machines: a verb, a kind of run with a step, a task of deploy systems, and the login of the tenant."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0056"
down_revision = "0055"
LOCKS = ("allocations", "bmc_tasks", "deploy_systems", "deploy_tasks", "deploy_runs")

# A process of the version before releases an allocation without clearing `rescue`; readers evaluate it by guest_state alone.
_STATEMENTS = b"""
alter table allocations
    drop constraint guest_state_is_known,
    add constraint guest_state_is_known check (guest_state in ('running', 'stopped', 'unknown', 'rescue')),
    drop constraint guest_verb_is_known,
    add constraint guest_verb_is_known check (guest_verb in ('reboot', 'stop', 'start', 'rebuild', 'rescue')),
    add column rescue jsonb;
comment on column allocations.rescue is 'How the tenant logs in to the rescue system, while guest_state is rescue.';
alter table bmc_tasks drop constraint bmc_task_kind, add constraint bmc_task_kind check (kind in (
    'look', 'rotate', 'reseal', 'power_on', 'power_off', 'power_reset', 'start_deploy', 'end_deploy', 'eject', 'reach'));
alter table deploy_systems drop constraint deploy_system_end,
    add constraint deploy_system_end check (ended_by in ('superseded', 'revoked', 'handed_over'));
alter table deploy_tasks drop constraint deploy_task_type,
    add constraint deploy_task_type check (type in ('metal.inspect', 'metal.deploy', 'metal.wipe', 'metal.rescue'));
alter table deploy_runs drop constraint deploy_run_kind,
    add constraint deploy_run_kind check (kind in ('inspect', 'wipe', 'deploy', 'stop', 'start', 'reboot', 'rescue')),
    drop constraint deploy_run_step,
    add constraint deploy_run_step
        check (step in ('power_off', 'start', 'work', 'eject', 'end', 'power_on', 'reach', 'rotate'));
"""


def upgrade() -> None:
    """Add them. Processes of the version before leave verbs and runs of a kind that they do not know alone."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
