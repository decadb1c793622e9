"""Runs that wipe or deploy a machine, also for allocations; certificates and tasks that last as long as large disks."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0052"
down_revision = "0051"
LOCKS = ("deploy_systems", "deploy_tasks", "deploy_runs", "bmc_tasks")

_STATEMENTS = b"""
alter table deploy_systems drop constraint deploy_certificate_is_short,
    add constraint deploy_certificate_is_short check (certificate_seconds between 60 and 606600);
alter table deploy_tasks drop constraint deploy_task_is_bounded,
    add constraint deploy_task_is_bounded check (seconds_max between 60 and 604800);
alter table deploy_runs drop constraint deploy_run_kind,
    add constraint deploy_run_kind check (kind in ('inspect', 'wipe', 'deploy')),
    drop constraint deploy_run_step,
    add constraint deploy_run_step check (step in ('power_off', 'start', 'work', 'end', 'power_on', 'reach'));
alter table deploy_runs add column parameters jsonb not null default '{}'
        constraint deploy_run_parameters_are_bounded check (octet_length(parameters::text) <= 131072),
    add column work_seconds integer not null default 1800
        constraint deploy_run_is_bounded check (work_seconds between 60 and 604800),
    add column task_id uuid,
    add column allocation_id uuid,
    add column claim_id bigint,
    add constraint deploy_run_owner_is_whole check (num_nulls(task_id, allocation_id, claim_id) in (0, 3));
comment on column deploy_runs.parameters is 'Of the task of its deploy system; the deploy epoch is added when that is permitted.';
comment on column deploy_runs.task_id is 'The task of the allocation that the run performs; null: an operator requested the run.';
comment on column deploy_runs.work_seconds is 'How long the task of its deploy system may take.';
alter table bmc_tasks drop constraint bmc_task_kind, add constraint bmc_task_kind check (
    kind in ('look', 'rotate', 'reseal', 'power_on', 'power_off', 'power_reset', 'start_deploy', 'end_deploy', 'reach'));
"""


def upgrade() -> None:
    """Loosen two bounds and add the kinds. Processes of the version before leave a run of a kind that they do not know alone."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
