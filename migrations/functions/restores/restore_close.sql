-- Closes the restore with this epoch: processes serve from now on, and every tenant and the operators get an event with the interval,
-- in one statement (10,000 tenants: a quarter of a second). Returns whether this call closed it. Raises BR001 if it is not
-- known here, BR002 if the lost interval was neither exported nor given up by a recorded reason.
create or replace function restore_close(p_epoch uuid) returns boolean
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    closing record;
begin
    select * into closing from restores r where r.epoch = p_epoch for update;
    if not found then
        raise exception 'there is no restore %', p_epoch using errcode = 'BR001';
    end if;
    if closing.closed_at is not null then
        return false;
    end if;
    if closing.exported_at is null and closing.without_export is null then
        raise exception 'the lost interval of restore % is not exported', p_epoch using errcode = 'BR002';
    end if;
    update restores set closed_at = clock_timestamp() where epoch = p_epoch returning * into closing;
    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, payload)
    select 'control_plane.restored', closing.closed_at, p_epoch, to_.tenant_id, 'restores/' || p_epoch, jsonb_build_object(
               'restored_to', rfc3339(closing.last_event_at), 'begun_at', rfc3339(closing.begun_at),
               'closed_at', rfc3339(closing.closed_at), 'first', skipped.payload -> 'first', 'last', skipped.payload -> 'last',
               'losses', case when closing.exported_at is not null then coalesce(reported.losses, 0) end)
    from (select t.id as tenant_id from tenants t where t.state <> 'deleted' union all select null) to_
    left join (select l.payload from log_stream s join log l on l.version = s.skipped_to) skipped on true
    left join (select o.tenant_id, sum(jsonb_array_length(o.payload -> 'lost')) as losses from outbox o
               where o.event_type = 'control_plane.losses_reported' and o.correlation_id = p_epoch group by 1) reported
         on reported.tenant_id = to_.tenant_id
    order by to_.tenant_id;
    insert into audit (principal_kind, principal_id, action, subject, detail)
    values ('system', 'berth restore', 'restore.close', 'restores/' || p_epoch, '{}');
    return true;
end $$;
