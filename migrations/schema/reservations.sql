-- Reservations (a hold or a confirmed window on named units) and the resources that operators register beside nodes.

-- A reservation's id is 128 bits: (shard << 64) | position, written as a uuid. A position is never reused, so a stale
-- holder can never change a newer reservation.
create sequence reservation_positions as bigint cache 1;
comment on sequence reservation_positions is 'Positions of reservations; the lower half of their ids.';

create table resources (
    id          text primary key check (id ~ '^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$'),
    unit        bigint not null constraint resource_unit_unique unique default nextval('unit_numbers'),
    state       text not null default 'in_service' check (state in ('in_service', 'out_of_service')),
    reason      text,
    created_at  timestamptz not null default clock_timestamp(),
    row_version bigint not null default 1
) with (fillfactor = 70);
comment on table resources is 'Resources that operators register: a licence seat, an address, a partition.';
comment on column resources.unit is 'Its only unit.';
comment on column resources.row_version is 'Rises also by the steps that a reservation takes by time (bump_row_versions).';

create table reservations (
    id                    uuid primary key,
    position              bigint not null constraint reservation_position_unique unique,
    tenant_id             uuid not null,
    holder_id             text not null check (length(holder_id) between 1 and 200),
    state                 text not null default 'hold'
                          check (state in ('hold', 'confirmed', 'cancelled', 'expired', 'consumed', 'released')),
    row_version           bigint not null default 1,
    resources             text[] not null check (cardinality(resources) between 1 and 1024),
    sku                   text,
    gpus                  integer check (gpus > 0),
    region                text,
    quantity              integer not null default 1 check (quantity between 1 and 1024),
    gpus_held             integer not null check (gpus_held >= 0),
    starts_at             timestamptz not null check (isfinite(starts_at)),
    ends_at               timestamptz check (isfinite(ends_at)),
    hold_until            timestamptz not null check (isfinite(hold_until)),
    expires_at            timestamptz,
    template              jsonb,
    name                  text,
    operation_key         text not null,
    operation_fingerprint bytea not null,
    correlation_id        uuid not null,
    held_at               timestamptz not null,
    confirmed_at          timestamptz,
    ended_at              timestamptz,
    held_event            uuid not null,
    confirmed_event       uuid,
    ended_event           uuid,
    retire_after          timestamptz,
    failure_code          text,
    failure_detail        text,
    waits_for             text,
    waits_since           timestamptz,
    waits_until           timestamptz,
    -- The key comes first, so that no statement about a tenant is planned over this index.
    constraint reservation_runs_once unique (operation_key, tenant_id),
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
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_analyze_scale_factor = 0.002, autovacuum_analyze_threshold = 1000);
comment on table reservations is 'Holds and confirmed windows.';
comment on column reservations.holder_id is 'The client''s name for the holder; confirm, cancel and consume must name it.';
comment on column reservations.resources is 'Names of the resources, as requested or as placement chose them.';
comment on column reservations.sku is 'Null: the client named resources.';
comment on column reservations.gpus is 'GPUs of each allocation.';
comment on column reservations.quantity is 'Allocations that it can become.';
comment on column reservations.gpus_held is 'GPUs that the tenant''s quota counts for it.';
comment on column reservations.ends_at is 'Null: without an end.';
comment on column reservations.hold_until is 'Deadline of the hold as it was granted; never changes.';
comment on column reservations.expires_at is 'Deadline while it is a hold, or by which it expired; otherwise null.';
comment on column reservations.template is 'The allocation that is created automatically at starts_at.';
comment on column reservations.operation_fingerprint is 'SHA-256 over method, path and canonical body of the hold.';
comment on column reservations.held_event is 'Id of reservation.held; its version is in the log once it is sequenced.';
comment on column reservations.confirmed_event is 'Id of reservation.confirmed; null: never confirmed.';
comment on column reservations.ended_event is 'Id of the event that ended it.';
comment on column reservations.retire_after is 'When the ended row may be deleted.';
comment on column reservations.waits_for is 'What the state waits for (P9); null in final states.';
-- Find holds whose deadline has passed (sweeper).
create index reservations_expiring on reservations (expires_at, position) where state = 'hold';
-- Find confirmed reservations whose window begins or is over (sweepers).
create index reservations_due on reservations (waits_until, position) where state = 'confirmed' and waits_until is not null;
-- Delete ended reservations after their retention (sweeper).
create index reservations_retiring on reservations (retire_after, position) where retire_after is not null;
-- Retry starts that wait for a node, in turns (find_late_starts).
create index reservations_late on reservations (position) where state = 'confirmed' and waits_for = 'node';
-- List a tenant's reservations by page; for the predicate see allocations_by_tenant.
create index reservations_by_tenant on reservations (tenant_id, position) where position > 0;
-- List a tenant's reservations of one state by page; for the predicate see allocations_by_tenant.
create index reservations_by_state on reservations (tenant_id, state, position) where row_version > 0;

create table reservation_watermark (
    one      boolean primary key default true check (one),
    position bigint not null default 0
);
comment on table reservation_watermark is 'One row: every position up to it without a reservation is retired for ever.';
comment on column reservation_watermark.one is 'Always true, so that there is one row.';
insert into reservation_watermark default values;

create trigger reservation_transitions before update of state on reservations
    for each row when (old.state is distinct from new.state) execute function refuse_illegal_reservation();
create trigger reservation_beginnings before insert on reservations
    for each row when (new.state <> 'hold') execute function refuse_initial_reservation();

create trigger resources_added after insert on resources referencing new table as fresh
    for each statement execute function count_resources();
create trigger resources_gone after delete on resources referencing old table as gone
    for each statement execute function count_resources();
create trigger resources_emptied after truncate on resources for each statement execute function forget_live_rows();
create trigger reservations_added after insert on reservations referencing new table as fresh
    for each statement execute function count_reservations();
create trigger reservations_changed after update on reservations referencing old table as gone new table as fresh
    for each statement execute function count_reservations();
create trigger reservations_gone after delete on reservations referencing old table as gone
    for each statement execute function count_reservations();
create trigger reservations_emptied after truncate on reservations for each statement execute function forget_live_rows();
