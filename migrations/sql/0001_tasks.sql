-- Signed instructions for nodes (DESIGN §9). The envelope is stored as signed, so a task handed out twice is the same
-- bytes twice. At most one task of an allocation is live.

create table node_tasks (
    id             uuid primary key,
    node_id        uuid not null,
    node_epoch     bigint not null,
    type           text not null,
    allocation_id  uuid,
    fence          bigint not null,
    attempt        integer not null default 1,
    state          text not null default 'queued'
                   check (state in ('queued', 'dispatched', 'completed', 'failed', 'expired', 'superseded')),
    envelope       jsonb not null,
    notify         text,                                     -- the workflow to wake when the task ends
    not_before     timestamptz not null,
    expires_at     timestamptz not null,
    queued_at      timestamptz not null default clock_timestamp(),
    dispatched_at  timestamptz,
    dispatch_count integer not null default 0,
    finished_at    timestamptz,
    result         jsonb,
    failure_code   text,
    failure_detail text,
    constraint task_finished_has_time check ((state in ('queued', 'dispatched')) = (finished_at is null)),
    constraint task_failed_has_code check (state <> 'failed' or failure_code is not null),
    constraint task_completed_has_result check (state <> 'completed' or result is not null)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
create index tasks_queued on node_tasks (node_id, queued_at, id) where state = 'queued';
create index tasks_dispatched on node_tasks (node_id) where state = 'dispatched';
create index tasks_by_allocation on node_tasks (allocation_id, queued_at);
create unique index one_live_task on node_tasks (allocation_id) where state in ('queued', 'dispatched');
