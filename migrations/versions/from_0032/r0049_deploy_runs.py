"""Runs of deploy systems, and the tasks about BMCs that switch machines, start deploy systems and end them."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0049"
down_revision = "0048"
LOCKS = ("nodes", "bmc_tasks")

_STATEMENTS = b"""
alter table bmc_tasks drop constraint bmc_task_kind, add constraint bmc_task_kind check (
    kind in ('look', 'rotate', 'reseal', 'power_on', 'power_off', 'power_reset', 'start_deploy', 'end_deploy'));
alter table bmc_tasks add column power_state text;
comment on column bmc_tasks.power_state is 'As the BMC reported it at the end of the task; null: it was not read.';
create table deploy_runs (
    id                uuid primary key default uuidv7(),
    node_id           uuid not null references nodes (id),
    site_id           uuid not null,
    kind              text not null constraint deploy_run_kind check (kind in ('inspect')),
    step              text not null default 'power_off'
        constraint deploy_run_step check (step in ('power_off', 'start', 'work', 'end')),
    medium            jsonb not null constraint deploy_run_medium_is_bounded check (octet_length(medium::text) <= 16384),
    requested_at      timestamptz not null default clock_timestamp(),
    requested_by      text not null,
    stop_requested_at timestamptz,
    stop_requested_by text,
    deploy_epoch      bigint,
    bmc_task_id       uuid not null,
    deploy_task_id    uuid,
    attempts          smallint not null default 0,
    waits_for         text,
    waits_since       timestamptz,
    waits_until       timestamptz,
    ended_at          timestamptz,
    outcome           text constraint deploy_run_outcome check (outcome in ('completed', 'failed', 'stopped')),
    failure           text constraint deploy_run_failure_is_bounded check (char_length(failure) <= 500),
    constraint deploy_run_stop_is_whole check (num_nulls(stop_requested_at, stop_requested_by) in (0, 2)),
    constraint deploy_run_permission_is_whole check (num_nulls(deploy_epoch, deploy_task_id) in (0, 2)),
    constraint deploy_run_end_is_whole check (num_nulls(ended_at, outcome) in (0, 2)),
    constraint deploy_run_waits check (num_nulls(waits_for, waits_since, waits_until) = 3 * num_nonnulls(outcome)),
    constraint deploy_run_failed_why check (outcome is null or (failure is not null) = (outcome = 'failed'))
);
comment on table deploy_runs is 'Runs of deploy systems: off, start, task, end. One open run of each node.';
comment on column deploy_runs.medium is 'What its deploy system is permitted with: machine, network, addresses; no token.';
comment on column deploy_runs.attempts is 'How often the end was requested of the site.';
create unique index one_deploy_run on deploy_runs (node_id) where ended_at is null;
comment on index one_deploy_run is 'One open run for each node.';
create index deploy_runs_by_node on deploy_runs (node_id, id);
comment on index deploy_runs_by_node is 'The newest run of a node.';
create index deploy_runs_open on deploy_runs (waits_until, id) where ended_at is null;
comment on index deploy_runs_open is 'The sweeper reads open runs.';
"""


def upgrade() -> None:
    """Add the table and allow more kinds. Processes of the version before request none; their agents refuse them by type."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
