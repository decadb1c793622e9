-- Allocations, the story of each, and the client-visible writes that made them.

create table allocations (
    id                    uuid primary key default uuidv7(),
    tenant_id             uuid not null,
    state                 text not null default 'requested' check (state in
                          ('requested', 'provisioning', 'active', 'releasing', 'released', 'release_failed', 'failed')),
    row_version           bigint not null default 1,
    sku                   text not null,
    shape                 text not null,
    gpu_model             text not null,
    gpus                  integer not null check (gpus > 0),
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
    connection            jsonb,                             -- where the tenant logs in, once active
    release_result        jsonb,
    release_attempts      integer not null default 0,
    waits_for             text,                              -- P9: every non-final state says what it waits for,
    waits_since           timestamptz,                       -- since when
    waits_until           timestamptz,                       -- and until when
    constraint creation_runs_once unique (tenant_id, operation_key),
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
create index allocations_by_tenant on allocations (tenant_id, id);
create index allocations_overdue on allocations (waits_until) where waits_until is not null;
create index allocations_live_by_node on allocations (node_id) where state not in ('released', 'failed');

create table allocation_timeline (
    id            bigint primary key generated always as identity,   -- uncached: under the allocation's lock it is the order
    allocation_id uuid not null,
    at            timestamptz not null default clock_timestamp(),
    kind          text not null check (kind in ('transition', 'progress', 'note')),
    from_state    text,
    to_state      text,
    row_version   bigint,                                    -- the allocation's, after this transition
    phase         text,
    code          text,
    detail        text,
    actor_kind    text not null check (actor_kind in ('tenant', 'admin', 'billing', 'worker', 'node', 'system')),
    actor_id      text,
    fence         bigint,
    constraint transition_names_states check ((kind = 'transition') = (to_state is not null and row_version is not null))
);
create index timeline_by_allocation on allocation_timeline (allocation_id, id);
create unique index timeline_transition_once on allocation_timeline (allocation_id, row_version) where kind = 'transition';

create table operations (
    scope        uuid not null,                              -- the tenant, or for admins the principal
    key          text not null check (length(key) between 1 and 255),
    fingerprint  bytea not null check (octet_length(fingerprint) = 32),
    status       smallint,                                   -- null only inside the transaction that runs it
    code         text,
    body         text,
    subject_id   uuid,
    version      bigint,
    created_at   timestamptz not null default clock_timestamp(),
    retire_after timestamptz not null,
    constraint operation_runs_once primary key (scope, key)
) with (fillfactor = 60);
create index operations_retiring on operations (retire_after);

create table audit (
    id             bigint primary key generated always as identity,
    at             timestamptz not null default clock_timestamp(),
    principal_kind text not null,
    principal_id   text not null,
    action         text not null,
    subject        text not null,
    detail         jsonb not null default '{}',
    request_id     text
);
create index audit_by_subject on audit (subject, id);

-- The database refuses every transition that DESIGN §4 does not list, and every one that skips the guard.
create function refuse_illegal_transition() returns trigger language plpgsql as $$
begin
    if (old.state, new.state) not in (
        ('requested', 'provisioning'), ('requested', 'failed'), ('requested', 'releasing'),
        ('provisioning', 'active'), ('provisioning', 'failed'), ('provisioning', 'releasing'),
        ('active', 'releasing'),
        ('releasing', 'released'), ('releasing', 'release_failed'),
        ('release_failed', 'releasing')
    ) then
        raise exception 'allocation % cannot go from % to %', old.id, old.state, new.state
            using errcode = 'BT001', constraint = 'allocation_transition_legal';
    end if;
    if new.row_version <> old.row_version + 1 then
        raise exception 'allocation % changed state without its guard', old.id
            using errcode = 'BT001', constraint = 'allocation_transition_guarded';
    end if;
    return new;
end $$;
create trigger allocation_transitions before update of state on allocations
    for each row when (old.state is distinct from new.state) execute function refuse_illegal_transition();

create function refuse_initial_state() returns trigger language plpgsql as $$
begin
    raise exception 'an allocation begins as requested, not as %', new.state
        using errcode = 'BT001', constraint = 'allocation_begins_requested';
end $$;
create trigger allocation_beginnings before insert on allocations
    for each row when (new.state <> 'requested') execute function refuse_initial_state();
