"""Tasks of maintenance windows: one of each node."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0045"
down_revision = "0044"

_STATEMENTS = b"""
create table maintenance_tasks (
    window_id   uuid not null references maintenance_windows (id),
    node_id     uuid not null,
    kind        text not null constraint maintenance_task_kind check (kind in ('health_probe', 'burn_in', 'gpu_reset', 'plugin')),
    plugin      text constraint maintenance_task_plugin_name check (plugin ~ '^[a-z0-9][a-z0-9._-]{0,31}$'),
    seconds_max integer not null constraint maintenance_task_is_bounded check (seconds_max between 1 and 14400),
    begins_at   timestamptz not null,
    state       text not null default 'waiting' constraint maintenance_task_state
        check (state in ('waiting', 'running', 'completed', 'failed', 'interrupted', 'not_run')),
    task_id     uuid,
    begun_at    timestamptz,
    waits_for   text,
    waits_since timestamptz,
    waits_until timestamptz,
    ended_at    timestamptz,
    failure     text constraint maintenance_task_failure_is_bounded check (char_length(failure) <= 500),
    evidence    text constraint maintenance_task_evidence_is_bounded check (char_length(evidence) <= 1000),
    primary key (window_id, node_id),
    constraint maintenance_task_names_plugin check ((kind = 'plugin') = (plugin is not null)),
    constraint maintenance_task_is_whole check (num_nulls(task_id, begun_at) in (0, 2)),
    constraint maintenance_task_has_begun check (case when state = 'waiting' then task_id is null
        else state = 'not_run' or task_id is not null end),
    constraint maintenance_task_failed_why check ((failure is not null) = (state in ('failed', 'interrupted', 'not_run'))),
    constraint maintenance_task_waits check (
        case when state = 'waiting' then coalesce(waits_for, '') = 'units' and num_nulls(waits_since, waits_until) = 0
                                          and ended_at is null
             when state = 'running' then coalesce(waits_for, '') = 'node' and num_nulls(waits_since, waits_until) = 0
                                         and ended_at is null
             else num_nonnulls(waits_for, waits_since, waits_until) = 0 and ended_at is not null end)
);
comment on table maintenance_tasks is 'What a maintenance window runs on each of its nodes, once, and what became of it.';
comment on column maintenance_tasks.begins_at is 'The start of the window: before it, the task is not looked for.';
comment on column maintenance_tasks.waits_until is 'Waiting: the end of the window. Running: the end of the task.';
comment on column maintenance_tasks.failure is 'Why it did not complete: a code, and what was found.';
create index maintenance_tasks_open on maintenance_tasks (begins_at, window_id, node_id) where ended_at is null;
comment on index maintenance_tasks_open is 'The sweeper reads those of windows that have begun.';
create unique index one_maintenance_task on maintenance_tasks (node_id) where state = 'running';
comment on index one_maintenance_task is 'One running task for each node.';
create index maintenance_tasks_by_node on maintenance_tasks (node_id, begun_at) where task_id is not null;
comment on index maintenance_tasks_by_node is 'The task before, whose signed order is deleted.';
"""


def upgrade() -> None:
    """Add the table. Processes of the version before do not use it, and cannot close the claims of a running task."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
