-- The log (DESIGN §7). `outbox` is where a transaction leaves its events; `log` is where they are kept, in one gapless
-- order. Sequencing moves rows from one to the other under the head row's lock, all visible rows in id order: an event
-- never precedes its cause, no row is skipped, no long transaction stalls the rest.

create table outbox (
    id             bigint primary key generated always as identity (cache 1),
    event_id       uuid not null default uuidv7(),
    event_type     text not null check (length(event_type) between 1 and 100),
    occurred_at    timestamptz not null default clock_timestamp(),
    correlation_id uuid not null,
    tenant_id      uuid,                                     -- null: for operators only
    subject        text not null check (length(subject) <= 200),
    operation_key  text check (length(operation_key) <= 255),
    request_id     text check (length(request_id) <= 255),
    payload        jsonb not null constraint payload_bounded check (octet_length(payload::text) <= 262144)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_insert_threshold = 100000);

create table log (
    version        bigint not null,
    prev_version   bigint not null,                          -- the previous version of the same tenant; 0: none, or no tenant
    outbox_id      bigint not null,
    event_id       uuid not null,
    event_type     text not null,
    occurred_at    timestamptz not null,
    correlation_id uuid not null,
    tenant_id      uuid,
    subject        text not null,
    operation_key  text,
    request_id     text,
    leader_id      text not null,
    payload        jsonb not null,
    constraint log_version primary key (version)
) partition by range (version);
create index log_by_event on log (event_id);
create index log_by_tenant on log (tenant_id, version);

create table log_head (
    one       boolean primary key default true check (one),
    version   bigint not null,
    leader_id text not null,                                 -- system identifier and timeline of this Postgres
    partition_versions bigint not null                       -- how many versions one partition holds
);
create table log_tenants (
    tenant_id uuid primary key,
    version   bigint not null
) with (fillfactor = 50);

-- Where each consumer of the log stands: everything at or below `version` is done.
create table consumer_positions (
    consumer   text primary key,
    version    bigint not null check (version >= 0),
    updated_at timestamptz not null default clock_timestamp()
);

create function postgres_leader_id() returns text language sql stable as $$
    select s.system_identifier::text || '-' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
    from pg_control_system() s
$$;

-- Makes sure that every partition from the head's to two after that of `p_version` exists; answers how many it made.
-- There is no DEFAULT partition: it would forbid detaching concurrently, so a missing partition must never happen and two
-- are kept ahead. ATTACH rather than CREATE ... PARTITION OF: the latter takes ACCESS EXCLUSIVE on `log`, so one long
-- reader would stop the log, and everybody behind it.
create function log_extend(p_version bigint) returns integer language plpgsql as $$
declare
    head  record;
    first bigint;
    made  integer := 0;
begin
    select version, partition_versions into head from log_head for update;
    for k in head.version / head.partition_versions .. p_version / head.partition_versions + 2 loop
        first := k * head.partition_versions;
        if to_regclass(format('log_from_%s', first)) is null then
            execute format('create table log_from_%s (like log including all)', first);
            execute format('alter table log attach partition log_from_%s for values from (%s) to (%s)',
                           first, first, first + head.partition_versions);
            made := made + 1;
        end if;
    end loop;
    return made;
end $$;

-- Gives up to `p_limit` waiting events their versions and answers how many it moved. Anyone may call it, at any time,
-- any number at once. READ COMMITTED: the statement after the lock sees all that was committed before it.
create function log_advance(p_limit integer) returns integer language plpgsql as $$
declare
    head   record;
    moved  integer;
begin
    -- By the index: a sequential look walks every page that the last burst left behind (1 ms a look against 0.1 ms).
    perform id from outbox order by id limit 1;
    if not found then
        return 0;
    end if;
    select version, leader_id, partition_versions into head from log_head for update;
    -- Two partitions stay ahead of the head; the check is arithmetic, so it costs nothing on the way.
    if (head.version + p_limit) / head.partition_versions > head.version / head.partition_versions then
        perform log_extend(head.version + p_limit);
    end if;
    -- One snapshot sees what is read and what is deleted, and only a holder of the head's lock deletes, so these are the
    -- same rows: exactly the lowest `p_limit` visible ids. Both plans are index ranges however stale the statistics of
    -- this ever-emptied table are, and the rows come sorted.
    with waiting as materialized (
        select * from outbox order by id limit p_limit
    ), gone as (
        delete from outbox where id <= (select max(id) from waiting)
    ), numbered as (
        select head.version + row_number() over (order by id) as version, w.* from waiting w
    ), chained as (
        select n.*, case when n.tenant_id is null then 0 else
                   coalesce(lag(n.version) over (partition by n.tenant_id order by n.version), c.version, 0)
               end as prev_version
        from numbered n left join log_tenants c on c.tenant_id = n.tenant_id
    ), kept as (
        insert into log (version, prev_version, outbox_id, event_id, event_type, occurred_at, correlation_id, tenant_id,
                         subject, operation_key, request_id, leader_id, payload)
        select version, prev_version, id, event_id, event_type, occurred_at, correlation_id, tenant_id,
               subject, operation_key, request_id, head.leader_id, payload
        from chained
        returning version, tenant_id
    ), chain as (
        insert into log_tenants (tenant_id, version)
        select tenant_id, max(version) from kept where tenant_id is not null group by tenant_id
        on conflict (tenant_id) do update set version = excluded.version
    )
    select count(*) into moved from kept;
    if moved > 0 then
        update log_head set version = head.version + moved;
    end if;
    return moved;
end $$;

insert into log_head (version, leader_id, partition_versions) values (0, postgres_leader_id(), 1000000);
select log_extend(0);
