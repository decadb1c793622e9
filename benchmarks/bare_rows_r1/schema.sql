-- The tables that a create writes, with every constraint, index and trigger, at commit 7fc91dd: the frozen denominator of
-- the budgets (DESIGN §10). It is never edited; the rows of the present schema are a second line.

create or replace function count_live(p_kind text, p_change bigint) returns void language plpgsql
set enable_seqscan = off as $$
begin
    if p_change <> 0 then
        insert into live_rows (kind, stripe, number) values (p_kind, pg_backend_pid(), p_change)
        on conflict (kind, stripe) do update set number = live_rows.number + excluded.number;
    end if;
end $$;

create or replace function room_left(p_kind text, p_bound bigint) returns bigint language plpgsql as $$
declare
    near constant bigint := 10000;                           -- more than all sessions together add before they commit
    room bigint;
begin
    select p_bound - coalesce(sum(number), 0) into room from live_rows where kind = p_kind;
    if room < near then
        perform pg_advisory_xact_lock(hashtext('live_rows'), hashtext(p_kind));
        select p_bound - coalesce(sum(number), 0) into room from live_rows where kind = p_kind;
    end if;
    return room;
end $$;

create or replace function count_operations() returns trigger language plpgsql as $$
declare
    bound    bigint := nullif(current_setting('berth.operations_max', true), '');
    changed  bigint;
    ordinary boolean;
begin
    if tg_op = 'INSERT' then
        select count(*), coalesce(bool_or(not ending), false) into changed, ordinary from fresh;
        perform count_live('operations', changed);
        if ordinary and bound is not null and room_left('operations', bound) < 0 then
            raise exception 'there is no room for another operation' using errcode = 'BO001';
        end if;
    else
        select -count(*) into changed from gone;
        perform count_live('operations', changed);
    end if;
    return null;
end $$;

create or replace function outgrow_blocked_claim() returns trigger language plpgsql as $$
begin
    update nodes set row_version = row_version + 1 where id = new.node_id;
    return null;
end $$;

create or replace function forget_live_rows() returns trigger language plpgsql as $$
begin
    delete from live_rows
    where kind = tg_table_name or (kind = 'holds' and tg_table_name = 'reservations');
    return null;
end $$;

create or replace function refuse_initial_state() returns trigger language plpgsql as $$
begin
    raise exception 'an allocation begins as requested, not as %', new.state
        using errcode = 'BT001', constraint = 'allocation_begins_requested';
end $$;

create or replace function refuse_illegal_transition() returns trigger language plpgsql as $$
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

create table live_rows (
    kind   text not null,
    stripe integer not null,
    number bigint not null,
    constraint live_rows_once primary key (kind, stripe)
) with (fillfactor = 25, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

insert into live_rows (kind, stripe, number)
values ('operations', 0, 0), ('resources', 0, 0), ('reservations', 0, 0), ('holds', 0, 0);

create sequence fences as bigint cache 1;

create table pools (
    id        integer primary key generated always as identity,
    region    text not null,
    gpu_model text not null,
    shape     text not null check (shape in ('baremetal', 'gpu_slice')),
    constraint pool_unique unique (region, gpu_model, shape)
);

create table nodes (
    id             uuid primary key default uuidv7(),
    name           text not null constraint node_name_unique unique check (name ~ '^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$'),
    pool_id        integer not null references pools,
    region         text not null,
    gpu_model      text not null,
    shape          text not null,
    slot_count     smallint not null check (slot_count between 1 and 62),
    half_slots     smallint not null check (half_slots between 1 and 62),
    unit_base      bigint not null constraint node_units_unique unique,
    state          text not null default 'registered'
                   check (state in ('registered', 'active', 'cordoned', 'draining', 'retired')),
    online         boolean not null default false,
    free_mask      bigint not null,
    fit_class      smallint not null,
    placement_rank integer not null default (random() * 2147483647)::integer,
    epoch          bigint not null default 0,
    hardware_id    text,
    address        text not null default '127.0.0.1',
    faults         jsonb not null default '{}',
    enrolled_at    timestamptz,
    last_seen_at   timestamptz,
    agent_version  text,
    held_allocations jsonb,
    created_at     timestamptz not null default clock_timestamp(),
    row_version    bigint not null default 1,
    inventory      jsonb,
    inventory_after timestamptz,
    constraint half_within_node check (half_slots <= slot_count),
    constraint free_mask_within_node check (free_mask >= 0 and free_mask < (1::bigint << slot_count)),
    constraint inventory_has_time check ((inventory is null) = (inventory_after is null))
) with (fillfactor = 70);

create index nodes_by_fit on nodes (pool_id, fit_class, placement_rank, id) where state = 'active' and online;

create index nodes_by_pool_layout on nodes (pool_id, slot_count, half_slots);

create index nodes_out_of_service on nodes (id) where (state <> 'active' or not online) and state <> 'retired';

create table operations (
    scope        uuid not null,
    key          text not null check (length(key) between 1 and 255),
    fingerprint  bytea check (octet_length(fingerprint) = 32),
    status       smallint,
    code         text,
    body         text,
    subject_id   uuid,
    version      bigint,
    created_at   timestamptz not null default clock_timestamp(),
    retire_after timestamptz not null,
    ending       boolean not null default false,
    constraint operation_runs_once primary key (scope, key),
    constraint tombstone_is_fenced
        check (fingerprint is not null or (status = 409 and code is not null and code = 'operation_fenced'))
) with (fillfactor = 60);

create index operations_retiring on operations (retire_after);

create trigger operations_added after insert on operations referencing new table as fresh
    for each statement execute function count_operations();

create trigger operations_gone after delete on operations referencing old table as gone
    for each statement execute function count_operations();

create trigger operations_emptied after truncate on operations for each statement execute function forget_live_rows();

create table claims (
    id             bigint primary key generated always as identity,
    node_id        uuid,
    tenant_id      uuid not null,
    owner_kind     text not null check (owner_kind in ('allocation', 'reservation')),
    owner_id       uuid not null,
    units          int8multirange not null constraint claim_units_not_empty check (not isempty(units)),
    during         tstzrange not null,
    booked         boolean not null default true,
    occupied       boolean not null default false,
    fence          bigint not null,
    created_at     timestamptz not null default clock_timestamp(),
    closed_at      timestamptz,
    occupied_from  timestamptz,
    occupied_until timestamptz,
    waits_for      text,
    waits_since    timestamptz,
    waits_until    timestamptz,
    resource_id    text,
    constraint claim_during_half_open check (
        not isempty(during) and lower_inc(during) and not upper_inc(during)
        and not lower_inf(during) and isfinite(lower(during))
        and (upper_inf(during) or isfinite(upper(during)))
    ),
    constraint claim_closed_is_over check ((closed_at is not null) = not (booked or occupied)),
    constraint claim_occupied_since check (not occupied or occupied_from is not null),
    constraint claim_occupied_until check (occupied_until is null or (not occupied and occupied_from is not null)),
    constraint claim_is_somewhere check (node_id is null or resource_id is null),
    constraint one_right exclude using gist (units with &&, during with &&) where (booked),
    constraint one_occupant exclude using gist (units with &&) where (occupied)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_analyze_scale_factor = 0.002, autovacuum_analyze_threshold = 1000);

create index claims_by_owner on claims (owner_id);

create index claims_overdue on claims (waits_until) where waits_until is not null;

create index claims_blocked on claims (node_id) where waits_for in ('operator', 'force_release');

create index claims_open_by_resource on claims (resource_id) where closed_at is null and resource_id is not null;

create index claims_windowed on claims (node_id)
where closed_at is null and node_id is not null
  and (owner_kind = 'reservation' or not booked or not upper_inf(during) or lower(during) > created_at);

create index claims_open_by_node on claims (node_id) where closed_at is null and node_id is not null;

create index claims_held on claims (node_id) where closed_at is null and owner_kind = 'reservation' and node_id is not null;

create trigger claim_blocked after update of waits_for on claims for each row
    when (new.node_id is not null and coalesce(old.waits_for in ('operator', 'force_release'), false)
                                      is distinct from coalesce(new.waits_for in ('operator', 'force_release'), false))
    execute function outgrow_blocked_claim();

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
    connection            jsonb,
    release_result        jsonb,
    release_attempts      integer not null default 0,
    waits_for             text,
    waits_since           timestamptz,
    waits_until           timestamptz,
    provision_until       timestamptz,
    ends_at               timestamptz check (isfinite(ends_at)),
    reservation_id        uuid,
    ending_told_at        timestamptz,
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

create index allocations_overdue on allocations (waits_until) where waits_until is not null;

create index allocations_live_by_node on allocations (node_id) where state not in ('released', 'failed');

create index allocations_ending on allocations (ends_at) where ends_at is not null and state in ('requested', 'provisioning', 'active');

create index allocations_by_reservation on allocations (reservation_id) where reservation_id is not null;

create index allocations_waiting_for_units on allocations (node_id) where waits_for = 'units';

create index allocations_by_tenant on allocations (tenant_id, id) where id > '00000000-0000-0000-0000-000000000000';

create table allocation_timeline (
    id            bigint primary key generated always as identity,
    allocation_id uuid not null,
    at            timestamptz not null default clock_timestamp(),
    kind          text not null check (kind in ('transition', 'progress', 'note')),
    from_state    text,
    to_state      text,
    row_version   bigint,
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

create trigger allocation_transitions before update of state on allocations
    for each row when (old.state is distinct from new.state) execute function refuse_illegal_transition();

create trigger allocation_beginnings before insert on allocations
    for each row when (new.state <> 'requested') execute function refuse_initial_state();

create table outbox (
    id             bigint primary key generated always as identity (cache 1),
    event_id       uuid not null default uuidv7(),
    event_type     text not null check (length(event_type) between 1 and 100),
    occurred_at    timestamptz not null default clock_timestamp(),
    correlation_id uuid not null,
    tenant_id      uuid,
    subject        text not null check (length(subject) <= 200),
    operation_key  text check (length(operation_key) <= 255),
    request_id     text check (length(request_id) <= 255),
    payload        jsonb not null constraint payload_bounded check (octet_length(payload::text) <= 262144)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_insert_threshold = 100000);
