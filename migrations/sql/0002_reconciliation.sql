-- What nodes say they hold, compared with what they should hold; and what the rescuer looks for (docs/lifecycle.md).

-- The newest complete inventory, [{allocation_id, slots, fence}], and the moment after which it was gathered: a time of
-- this database's clock that the agent had been told before it looked. Null: none was ever sent, which means nothing.
alter table nodes add column inventory jsonb, add column inventory_after timestamptz,
    add constraint inventory_has_time check ((inventory is null) = (inventory_after is null));

-- What a node holds although nothing here says that it should. Its slots are out of service until it is destroyed.
create table node_orphans (
    id             uuid primary key default uuidv7(),
    node_id        uuid not null references nodes,
    allocation_id  uuid not null,                            -- as reported; perhaps nobody here knows it
    slots          smallint[] not null,                      -- indexes on the node; all of them if the node cannot say
    fence          bigint,                                   -- as reported
    state          text not null default 'reported' check (state in ('reported', 'adopted', 'destroying', 'destroyed')),
    row_version    bigint not null default 1,
    first_seen_at  timestamptz not null default clock_timestamp(),
    last_seen_at   timestamptz not null default clock_timestamp(),
    decided_by     text,
    decided_at     timestamptz,
    reason         text,
    adopted_for    uuid,                                     -- the allocation it belongs to, if it was adopted for one
    attempts       integer not null default 0,
    failure_code   text,
    failure_detail text,
    destroyed_at   timestamptz,
    proof          jsonb,
    waits_for      text,
    waits_since    timestamptz,
    waits_until    timestamptz,
    constraint orphan_waits_unless_destroyed check ((state = 'destroyed') = (waits_for is null)
                                                    and (waits_for is null) = (waits_since is null)
                                                    and (state <> 'destroying' or waits_until is not null)),
    constraint orphan_destroyed_by_proof check ((state = 'destroyed') = (destroyed_at is not null)
                                                and (state = 'destroyed') = (proof is not null)),
    constraint orphan_decision_is_complete check ((decided_by is null) = (decided_at is null))
);
create unique index one_orphan on node_orphans (node_id, allocation_id) where state <> 'destroyed';
create index orphans_by_node on node_orphans (node_id, id);
create index orphans_undecided on node_orphans (waits_until) where state in ('destroying', 'adopted');

-- The task that destroys an orphan is for no allocation: an allocation of that id may be alive elsewhere.
alter table node_tasks add column orphan_id uuid,
    add constraint task_for_one check (orphan_id is null or allocation_id is null);
create index tasks_by_orphan on node_tasks (orphan_id, fence) where orphan_id is not null;
create unique index one_live_task_of_orphan on node_tasks (orphan_id)
    where orphan_id is not null and state in ('queued', 'dispatched');
create index tasks_expiring on node_tasks (expires_at) where state in ('queued', 'dispatched');

-- Active allocations that their node's complete inventories do not name, and how many of them in a row.
create table allocation_absences (
    allocation_id uuid primary key,
    node_id       uuid not null,
    first_missed  timestamptz not null,
    last_missed   timestamptz not null,                      -- the last such inventory's `inventory_after`
    inventories   integer not null default 1 check (inventories > 0),
    reported_at   timestamptz
);

-- Which event a workflow was to start from.
create index log_starts on log (subject, version)
    where event_type in ('provisioning.requested', 'provisioning.releasing.requested');
