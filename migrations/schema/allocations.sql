-- Allocations and the timeline of each. The triggers refuse every transition that DESIGN §4 does not list, and every
-- update of the state that skips the guard.

create domain allocation_state as text check
    (value in ('requested', 'provisioning', 'active', 'releasing', 'released', 'release_failed', 'failed'));

create table allocations (
    id                    uuid primary key default uuidv7(),
    tenant_id             uuid not null,
    state                 allocation_state not null default 'requested',
    row_version           bigint not null default 1,
    sku                   text not null,
    shape                 text not null,
    gpu_model             text not null,
    gpus                  gpu_count not null,
    region                text not null,
    image                 text not null,
    price_version         bigint not null,
    name                  text,
    labels                jsonb not null default '{}',
    user_data             text,
    ssh_public_keys       text[] not null,
    node_id               uuid not null,
    claim_id              bigint not null,
    operation_key         text not null,
    operation_fingerprint bytea not null,
    correlation_id        uuid not null,
    requested_at          timestamptz not null default clock_timestamp(),
    active_at             timestamptz,
    releasing_at          timestamptz,
    released_at           timestamptz,
    release_failed_at     timestamptz,
    failed_at             timestamptz,
    failure_code          text,
    failure_detail        text,
    connection            jsonb,
    release_result        jsonb,
    release_attempts      integer not null default 0,
    waits_for             text,
    waits_since           timestamptz,
    waits_until           timestamptz,
    provision_until       timestamptz,
    ends_at               finite_time,
    reservation_id        uuid,
    ending_told_at        timestamptz,
    -- The key comes first, so that no statement about a tenant is planned over this index.
    constraint creation_runs_once unique (operation_key, tenant_id),
    constraint final_waits_for_nothing check ((state in ('released', 'failed')) = (waits_for is null)),
    constraint waiting_is_complete check ((waits_for is null) = (waits_since is null)
                                          and (waits_for is null or state = 'active' or state = 'release_failed'
                                               or waits_until is not null)),
    constraint active_has_time check (state <> 'active' or active_at is not null),
    constraint releasing_has_time check (state not in ('releasing', 'released', 'release_failed') or releasing_at is not null),
    constraint released_has_time check ((state = 'released') = (released_at is not null)),
    constraint failed_has_reason check ((state = 'failed') = (failed_at is not null)
                                        and (state <> 'failed' or failure_code is not null))
) with (fillfactor = 70);
comment on table allocations is 'What tenants'' workloads run on.';
comment on column allocations.price_version is 'Version of the SKU''s price that the whole allocation is billed at.';
comment on column allocations.claim_id is 'The claim that holds its units.';
comment on column allocations.operation_key is 'Idempotency key of the create; kept, so that a creation never runs twice.';
comment on column allocations.operation_fingerprint is 'SHA-256 over method, path and canonical body of the create.';
comment on column allocations.connection is 'Where the tenant logs in, once active.';
comment on column allocations.release_result is 'The node''s proof of cleanup, or the operator''s statement.';
comment on column allocations.release_attempts is 'Release tasks issued so far.';
comment on column allocations.waits_for is 'What the state waits for (P9); null in final states.';
comment on column allocations.waits_until is 'Deadline of the wait.';
comment on column allocations.provision_until is 'Deadline of all provisioning attempts together.';
comment on column allocations.ends_at is 'When the allocation is released automatically; null: never.';
comment on column allocations.reservation_id is 'The reservation that it came from.';
comment on column allocations.ending_told_at is 'When reservation.ending was emitted; null: not yet.';
-- Find allocations whose deadline has passed (sweepers).
create index allocations_overdue on allocations (waits_until) where waits_until is not null;
-- Live allocations of a node: drain, reconciliation.
create index allocations_live_by_node on allocations (node_id) where state not in ('released', 'failed');
-- Find allocations that end soon or have ended (sweepers).
create index allocations_ending on allocations (ends_at) where ends_at is not null and state in ('requested', 'provisioning', 'active');
-- Allocations of a reservation.
create index allocations_by_reservation on allocations (reservation_id) where reservation_id is not null;
-- Start allocations that wait for occupied units of a node (start_waiting).
create index allocations_waiting_for_units on allocations (node_id) where waits_for = 'units';
-- List a tenant's allocations by page. The predicate is always true and stated by that list alone, so the planner uses
-- this index for no other statement, even without statistics (docs/reference/performance.md).
create index allocations_by_tenant on allocations (tenant_id, id) where id > '00000000-0000-0000-0000-000000000000';

create domain timeline_kind as text check (value in ('transition', 'progress', 'note'));
create domain actor_kind as text check (value in ('tenant', 'admin', 'billing', 'worker', 'node', 'system'));

create table allocation_timeline (
    id            bigint generated always as identity,
    allocation_id uuid not null,
    at            timestamptz not null default clock_timestamp(),
    kind          timeline_kind not null,
    from_state    text,
    to_state      text,
    row_version   bigint,
    phase         text,
    code          text,
    detail        text,
    actor_kind    actor_kind not null,
    actor_id      text,
    fence         bigint,
    -- Also pages through an allocation's timeline.
    primary key (allocation_id, id),
    constraint transition_names_states check ((kind = 'transition') = (to_state is not null and row_version is not null))
);
comment on table allocation_timeline is 'Transitions and progress of an allocation, in order.';
comment on column allocation_timeline.id is 'Drawn uncached under the allocation''s lock, so it is the order of entries.';
comment on column allocation_timeline.row_version is 'The allocation''s row_version after this transition.';
comment on column allocation_timeline.phase is 'Phase of the node''s task that reported progress.';
comment on column allocation_timeline.fence is 'Fencing token of the task concerned.';
-- Refuse two transitions with one row_version.
create unique index timeline_transition_once on allocation_timeline (allocation_id, row_version) where kind = 'transition';

create trigger allocation_transitions before update of state on allocations
    for each row when (old.state is distinct from new.state) execute function refuse_illegal_transition();
create trigger allocation_beginnings before insert on allocations
    for each row when (new.state <> 'requested') execute function refuse_initial_state();
