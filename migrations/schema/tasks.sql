-- Signed instructions for nodes (DESIGN §9). The envelope is stored as signed, so a task that is leased twice has the
-- same bytes twice. An allocation has at most one live task.

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
    notify         text,
    not_before     timestamptz not null,
    expires_at     timestamptz not null,
    queued_at      timestamptz not null default clock_timestamp(),
    dispatched_at  timestamptz,
    dispatch_count integer not null default 0,
    finished_at    timestamptz,
    result         jsonb,
    failure_code   text,
    failure_detail text,
    orphan_id      uuid,
    constraint task_finished_has_time check ((state in ('queued', 'dispatched')) = (finished_at is null)),
    constraint task_failed_has_code check (state <> 'failed' or failure_code is not null),
    constraint task_completed_has_result check (state <> 'completed' or result is not null),
    constraint task_for_one check (orphan_id is null or allocation_id is null)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
comment on table node_tasks is 'Tasks: signed instructions that a node executes once each.';
comment on column node_tasks.node_epoch is 'The node''s epoch when the task was signed.';
comment on column node_tasks.envelope is 'The signed task, byte for byte as the node verifies it.';
comment on column node_tasks.notify is 'Workflow that is signalled when the task ends.';
comment on column node_tasks.expires_at is 'After this time a node starts it no more.';
comment on column node_tasks.dispatch_count is 'How often a node has leased it.';
comment on column node_tasks.orphan_id is 'The orphan that it destroys; such a task is for no allocation.';
-- Lease the oldest queued task of a node.
create index tasks_queued on node_tasks (node_id, queued_at, id) where state = 'queued';
-- Tasks that a node executes: repeated leases, limits.
create index tasks_dispatched on node_tasks (node_id) where state = 'dispatched';
-- Tasks of an allocation, in order.
create index tasks_by_allocation on node_tasks (allocation_id, queued_at);
-- Refuse a second live task of an allocation.
create unique index one_live_task on node_tasks (allocation_id) where state in ('queued', 'dispatched');
-- Tasks of an orphan by fence.
create index tasks_by_orphan on node_tasks (orphan_id, fence) where orphan_id is not null;
-- Refuse a second live task of an orphan.
create unique index one_live_task_of_orphan on node_tasks (orphan_id)
    where orphan_id is not null and state in ('queued', 'dispatched');
-- Find live tasks that have expired (sweeper).
create index tasks_expiring on node_tasks (expires_at) where state in ('queued', 'dispatched');
