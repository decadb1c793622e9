-- Reservations: a hold or a confirmed window on named units, and what operators register beside nodes (DESIGN §4, §5).

-- A reservation's id is 128 bits: (shard << 64) | position, written as a uuid. Positions come from one increasing sequence
-- and are never used again, so a stale holder can never touch a younger reservation (reference: AllocDB semantics).
create sequence reservation_positions as bigint cache 1;

create function reservation_id(p_shard bigint, p_position bigint) returns uuid language sql immutable strict as $$
    select (lpad(to_hex(p_shard), 16, '0') || lpad(to_hex(p_position), 16, '0'))::uuid
$$;

-- What operators register: a licence seat, an address, a partition. Nodes and slots are resources of themselves.
create table resources (
    id          text primary key check (id ~ '^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$'),
    unit        bigint not null constraint resource_unit_unique unique default nextval('unit_numbers'),
    state       text not null default 'in_service' check (state in ('in_service', 'out_of_service')),
    reason      text,
    created_at  timestamptz not null default clock_timestamp(),
    row_version bigint not null default 1
) with (fillfactor = 70);

create table reservations (
    id                    uuid primary key,
    position              bigint not null constraint reservation_position_unique unique,
    tenant_id             uuid not null,
    holder_id             text not null check (length(holder_id) between 1 and 200),
    state                 text not null default 'hold'
                          check (state in ('hold', 'confirmed', 'cancelled', 'expired', 'consumed', 'released')),
    row_version           bigint not null default 1,
    resources             text[] not null check (cardinality(resources) between 1 and 1024),   -- as they were asked for or chosen
    sku                   text,                                -- null: resources were named
    gpus                  integer check (gpus > 0),            -- per allocation
    region                text,
    quantity              integer not null default 1 check (quantity between 1 and 1024),      -- allocations it can become
    gpus_held             integer not null check (gpus_held >= 0),                             -- counted by the tenant's quota
    starts_at             timestamptz not null check (isfinite(starts_at)),
    ends_at               timestamptz check (isfinite(ends_at)),                               -- null: open-ended
    hold_until            timestamptz not null check (isfinite(hold_until)),                   -- the deadline it was held by
    expires_at            timestamptz,                         -- null once confirmed, or ended without having expired
    template              jsonb,                               -- the allocation it stands for; starts by itself at starts_at
    name                  text,
    operation_key         text not null,
    operation_fingerprint bytea not null,
    correlation_id        uuid not null,
    held_at               timestamptz not null,
    confirmed_at          timestamptz,
    ended_at              timestamptz,
    held_event            uuid not null,                       -- their versions are in the log, once they have one
    ended_event           uuid,
    retire_after          timestamptz,
    failure_code          text,
    failure_detail        text,
    waits_for             text,                                -- P9
    waits_since           timestamptz,
    waits_until           timestamptz,
    constraint reservation_runs_once unique (tenant_id, operation_key),
    constraint window_not_empty check (ends_at is null or ends_at > starts_at),
    constraint sku_is_complete check ((sku is null) = (gpus is null) and (sku is null) = (region is null)),
    constraint hold_has_deadline check ((state = 'hold') <= (expires_at is not null)),
    constraint confirmed_has_no_deadline check (state <> 'confirmed' or (expires_at is null and confirmed_at is not null)),
    constraint reservation_ended_is_complete check ((state in ('hold', 'confirmed')) = (ended_at is null)
                                                    and (ended_at is null) = (ended_event is null)
                                                    and (ended_at is null) = (retire_after is null)),
    constraint reservation_waits_while_live check ((state in ('hold', 'confirmed')) = (waits_for is not null)
                                                   and (waits_for is null) = (waits_since is null)
                                                   and (state <> 'hold' or waits_until is not null))
) with (fillfactor = 70);
create index reservations_by_tenant on reservations (tenant_id, position);
create index reservations_expiring on reservations (expires_at, position) where state = 'hold';
create index reservations_due on reservations (waits_until, position) where state = 'confirmed' and waits_until is not null;
create index reservations_retiring on reservations (retire_after, position) where retire_after is not null;

-- Every position at or below it that has no row is retired for ever (one row).
create table reservation_watermark (
    one      boolean primary key default true check (one),
    position bigint not null default 0
);
insert into reservation_watermark default values;

-- The only transitions; the last four are final (DESIGN §4).
create function refuse_illegal_reservation() returns trigger language plpgsql as $$
begin
    if (old.state, new.state) not in (
        ('hold', 'confirmed'), ('hold', 'cancelled'), ('hold', 'expired'), ('hold', 'consumed'),
        ('confirmed', 'consumed'), ('confirmed', 'cancelled'), ('confirmed', 'released')
    ) then
        raise exception 'reservation % cannot go from % to %', old.id, old.state, new.state
            using errcode = 'BT001', constraint = 'reservation_transition_legal';
    end if;
    if new.row_version <> old.row_version + 1 then
        raise exception 'reservation % changed state without its guard', old.id
            using errcode = 'BT001', constraint = 'reservation_transition_guarded';
    end if;
    return new;
end $$;
create trigger reservation_transitions before update of state on reservations
    for each row when (old.state is distinct from new.state) execute function refuse_illegal_reservation();

create function refuse_initial_reservation() returns trigger language plpgsql as $$
begin
    raise exception 'a reservation begins as hold, not as %', new.state
        using errcode = 'BT001', constraint = 'reservation_begins_as_hold';
end $$;
create trigger reservation_beginnings before insert on reservations
    for each row when (new.state <> 'hold') execute function refuse_initial_reservation();

-- A claim of a registered resource names it, as one of a node names the node.
alter table claims add column resource_id text,
    add constraint claim_is_somewhere check (node_id is null or resource_id is null);
create index claims_open_by_resource on claims (resource_id) where closed_at is null and resource_id is not null;

-- An allocation may end by itself, may come from a reservation, and may wait for units that are still occupied.
alter table allocations
    add column ends_at timestamptz check (isfinite(ends_at)),
    add column reservation_id uuid,
    add column ending_told_at timestamptz;
create index allocations_ending on allocations (ends_at) where ends_at is not null and state in ('requested', 'provisioning', 'active');
create index allocations_by_reservation on allocations (reservation_id) where reservation_id is not null;
create index allocations_waiting_for_units on allocations (node_id) where waits_for = 'units';
