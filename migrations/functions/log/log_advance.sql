-- Gives up to `p_limit` waiting events their versions and answers how many it moved. Anyone may call it, at any time,
-- any number at once. READ COMMITTED: the statement after the lock sees all that was committed before it. Each row names the Postgres
-- that sequences it, accepted or not, and the head's epoch.
create or replace function log_advance(p_limit integer) returns integer language plpgsql as $$
declare
    head   record;
    here   text;
    moved  integer;
begin
    -- By the index: a sequential look walks every page that the last burst left behind (1 ms a look against 0.1 ms).
    perform id from outbox order by id limit 1;
    if not found then
        return 0;
    end if;
    select version, leader_id, epoch, partition_versions into head from log_head for update;
    here := postgres_leader_id();
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
               subject, operation_key, request_id, here || '-' || head.epoch, payload
        from chained
        returning version, tenant_id
    ), chain as (
        insert into log_tenants (tenant_id, version)
        select tenant_id, max(version) from kept where tenant_id is not null group by tenant_id
        on conflict (tenant_id) do update set version = excluded.version
    )
    select count(*) into moved from kept;
    if moved > 0 then
        update log_head set
            version = head.version + moved,
            waits_for_standbys = case when head.leader_id = here then current_setting('synchronous_standby_names') <> ''
                                      else waits_for_standbys end;
    end if;
    return moved;
end $$;
