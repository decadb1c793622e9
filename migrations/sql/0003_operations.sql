-- Operations: keys that were asked about before they arrived, and tables that count themselves (DESIGN §6, P12, P13).

-- A row without a fingerprint is a tombstone: the key was asked about and nobody had used it. Whoever still comes with it
-- is too late, whatever he brings, so it has no content to be compared with.
alter table operations
    alter column fingerprint drop not null,
    add column ending boolean not null default false,        -- release, cancel, confirm, ...: never refused for want of room
    add constraint tombstone_is_fenced
        check (fingerprint is not null or (status = 409 and code is not null and code = 'operation_fenced'));

-- How many rows there are, without counting them: the sum over `stripe` of what each backend has added and taken away.
-- A stripe is a backend's process id, so no two transactions ever wait for one row of this table.
create table live_rows (
    kind   text not null,
    stripe integer not null,
    number bigint not null,
    constraint live_rows_once primary key (kind, stripe)
) with (fillfactor = 25, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

create function count_live(p_kind text, p_change bigint) returns void language plpgsql
set enable_seqscan = off as $$
begin
    if p_change <> 0 then
        insert into live_rows (kind, stripe, number) values (p_kind, pg_backend_pid(), p_change)
        on conflict (kind, stripe) do update set number = live_rows.number + excluded.number;
    end if;
end $$;

-- How many more rows of this kind `p_bound` allows, those of this transaction counted; negative beyond it. Near the bound
-- transactions that add rows go one at a time until they commit, so the answer holds; far from it nobody waits.
create function room_left(p_kind text, p_bound bigint) returns bigint language plpgsql as $$
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

-- What backends that are gone have counted goes to this one's stripe; answers how many stripes that were. Those that a
-- process with the same number is using again are in nobody's way: it makes a new one.
create function gather_live_rows() returns integer language plpgsql as $$
declare
    gone integer;
begin
    with left_behind as (
        select kind, stripe from live_rows l
        where l.stripe <> pg_backend_pid() and not exists (select from pg_stat_activity a where a.pid = l.stripe)
        for update skip locked
    ), taken as (
        delete from live_rows l using left_behind b where l.kind = b.kind and l.stripe = b.stripe
        returning l.kind, l.number
    ), summed as (
        select kind, sum(number)::bigint as number, count(*) as stripes from taken group by kind
    ), counted as (
        select count_live(kind, number), stripes from summed
    )
    select coalesce(sum(stripes), 0) into gone from counted;
    return gone;
end $$;

-- The bound on operations is judged here, so that no way of writing one passes it by. Sessions say what it is in
-- `berth.operations_max`; those that do not say count only.
create function count_operations() returns trigger language plpgsql as $$
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
create trigger operations_added after insert on operations referencing new table as fresh
    for each statement execute function count_operations();
create trigger operations_gone after delete on operations referencing old table as gone
    for each statement execute function count_operations();

create function count_resources() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        perform count_live('resources', (select count(*) from fresh));
    else
        perform count_live('resources', -(select count(*) from gone));
    end if;
    return null;
end $$;
create trigger resources_added after insert on resources referencing new table as fresh
    for each statement execute function count_resources();
create trigger resources_gone after delete on resources referencing old table as gone
    for each statement execute function count_resources();

-- Two kinds: live reservations, and among them the holds, which wait for their deadline.
create function count_reservations() returns trigger language plpgsql as $$
declare
    live  bigint := 0;
    holds bigint := 0;
    more  record;
begin
    if tg_op in ('INSERT', 'UPDATE') then
        select count(*) filter (where state in ('hold', 'confirmed')) as live, count(*) filter (where state = 'hold') as holds
        into more from fresh;
        live := more.live;
        holds := more.holds;
    end if;
    if tg_op in ('UPDATE', 'DELETE') then
        select count(*) filter (where state in ('hold', 'confirmed')) as live, count(*) filter (where state = 'hold') as holds
        into more from gone;
        live := live - more.live;
        holds := holds - more.holds;
    end if;
    perform count_live('reservations', live);
    perform count_live('holds', holds);
    return null;
end $$;
create trigger reservations_added after insert on reservations referencing new table as fresh
    for each statement execute function count_reservations();
create trigger reservations_changed after update on reservations referencing old table as gone new table as fresh
    for each statement execute function count_reservations();
create trigger reservations_gone after delete on reservations referencing old table as gone
    for each statement execute function count_reservations();

create function forget_live_rows() returns trigger language plpgsql as $$
begin
    delete from live_rows
    where kind = tg_table_name or (kind = 'holds' and tg_table_name = 'reservations');
    return null;
end $$;
create trigger operations_emptied after truncate on operations for each statement execute function forget_live_rows();
create trigger resources_emptied after truncate on resources for each statement execute function forget_live_rows();
create trigger reservations_emptied after truncate on reservations for each statement execute function forget_live_rows();

insert into live_rows (kind, stripe, number)
select 'operations', 0, count(*) from operations
union all select 'resources', 0, count(*) from resources
union all select 'reservations', 0, count(*) from reservations where state in ('hold', 'confirmed')
union all select 'holds', 0, count(*) from reservations where state = 'hold';

-- The creation that was made under a key and still stands, however long its operation has been retired: it never runs
-- twice. The body is what its first answer said.
create function standing_creation(p_scope uuid, p_key text)
returns table (fingerprint bytea, status smallint, body text, subject_id uuid) language sql stable as $$
    select a.operation_fingerprint, 201::smallint, creation_body(a)::text, a.id
    from allocations a where a.tenant_id = p_scope and a.operation_key = p_key
$$;
