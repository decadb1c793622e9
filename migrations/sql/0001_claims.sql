-- Claims: rectangles, units x time, with one owner each. Two constraints are the physics (DESIGN §5): no two rights to
-- one unit at one time, no two occupants of one unit. Closed claims leave both indexes, so history costs nothing.

create table claims (
    id             bigint primary key generated always as identity,
    node_id        uuid,                                    -- null: units of a registered resource, not of a node
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
    waits_for      text,                                    -- P9: what keeps an ended right's units from reuse
    waits_since    timestamptz,
    waits_until    timestamptz,
    constraint claim_during_half_open check (
        not isempty(during) and lower_inc(during) and not upper_inc(during)
        and not lower_inf(during) and isfinite(lower(during))
        and (upper_inf(during) or isfinite(upper(during)))
    ),
    constraint claim_closed_is_over check ((closed_at is not null) = not (booked or occupied)),
    constraint claim_occupied_since check (not occupied or occupied_from is not null),
    constraint claim_occupied_until check (occupied_until is null or (not occupied and occupied_from is not null)),
    constraint one_right exclude using gist (units with &&, during with &&) where (booked),
    constraint one_occupant exclude using gist (units with &&) where (occupied)
) with (fillfactor = 80);
create index claims_by_owner on claims (owner_id);
create index claims_open_by_node on claims (node_id) where closed_at is null;
create index claims_overdue on claims (waits_until) where waits_until is not null;
