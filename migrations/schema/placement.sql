-- Claims: rectangles of units x time with one owner each. Two exclusion constraints refuse overlaps (DESIGN §5): of two
-- rights to a unit at one time, and of two occupants of a unit. Closed claims leave both indexes.

create domain claim_owner_kind as text check (value in ('allocation', 'reservation'));
create domain claim_units as int8multirange constraint claim_units_not_empty check (not isempty(value));
create domain claim_time as tstzrange constraint claim_during_half_open check (
    not isempty(value) and lower_inc(value) and not upper_inc(value)
    and not lower_inf(value) and isfinite(lower(value))
    and (upper_inf(value) or isfinite(upper(value)))
);

create table claims (
    id             bigint primary key generated always as identity,
    node_id        uuid,
    tenant_id      uuid not null,
    owner_kind     claim_owner_kind not null,
    owner_id       uuid not null,
    units          claim_units not null,
    during         claim_time not null,
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
    constraint claim_closed_is_over check ((closed_at is not null) = not (booked or occupied)),
    constraint claim_occupied_since check (not occupied or occupied_from is not null),
    constraint claim_occupied_until check (occupied_until is null or (not occupied and occupied_from is not null)),
    constraint claim_is_somewhere check (node_id is null or resource_id is null),
    constraint one_right exclude using gist (units with &&, during with &&) where (booked),
    constraint one_occupant exclude using gist (units with &&) where (occupied)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_analyze_scale_factor = 0.002, autovacuum_analyze_threshold = 1000);
comment on table claims is 'Units x time with one owner. Changed only under the lock of the node or resource.';
comment on column claims.node_id is 'Null: units of a registered resource.';
comment on column claims.owner_id is 'Id of the allocation or reservation.';
comment on column claims.during is 'The promised time, half-open; never changes.';
comment on column claims.booked is 'The owner has the right to the units during that time; ends at cancel, expiry or release.';
comment on column claims.occupied is 'Something may be running on the units; cleared only by proof of cleanup or force-cleanup.';
comment on column claims.fence is 'Fencing token; a command with a smaller one is refused.';
comment on column claims.waits_for is 'What keeps the units of an ended right from reuse (P9).';
comment on column claims.resource_id is 'Registered resource; null: units of a node.';
-- Claims of an allocation or reservation: release, proof, turn-over.
create index claims_by_owner on claims (owner_id);
-- Ended rights whose deadline for cleanup has passed (sweeper).
create index claims_overdue on claims (waits_until) where waits_until is not null;
-- Units of a node that wait for an operator.
create index claims_blocked on claims (node_id) where waits_for in ('operator', 'force_release');
-- Open claims of a registered resource (rivals_for).
create index claims_open_by_resource on claims (resource_id) where closed_at is null and resource_id is not null;
-- Nodes whose free slots depend on the window (nodes_in_window, pools_in_time).
create index claims_windowed on claims (node_id)
where closed_at is null and node_id is not null
  and (owner_kind = 'reservation' or not booked or not upper_inf(during) or lower(during) > created_at);
-- Open claims of a node (refresh_node_fit, rivals_for, find_stranded). The predicate on node_id keeps the planner from reading this
-- index for questions about owners: without statistics it expects one row in every index of open claims.
create index claims_open_by_node on claims (node_id) where closed_at is null and node_id is not null;

-- An ended right that starts or stops waiting for an operator changes its units' state, so the node's version rises.
create trigger claim_blocked after update of waits_for on claims for each row
    when (new.node_id is not null and coalesce(old.waits_for in ('operator', 'force_release'), false)
                                      is distinct from coalesce(new.waits_for in ('operator', 'force_release'), false))
    execute function bump_node_version();
