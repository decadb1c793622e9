-- Leaves an event for each page of what a tenant lost by the restore with this epoch: `p_pages` is a list of {tenant_id, part, lost}. A
-- tenant that the database does not have gets none. With `p_anew` the events of an earlier export are replaced; if `p_missing`
-- versions of the lost interval are unknown, each tenant gets an event that says so. Raises BR001 if the restore is not open.
create or replace function restore_report_losses(p_epoch uuid, p_anew boolean, p_missing bigint, p_pages jsonb) returns void
language plpgsql security definer set search_path = public, pg_temp as $$
begin
    perform restore_lock_open(p_epoch);
    if p_anew then
        delete from outbox where event_type = 'control_plane.losses_reported' and correlation_id = p_epoch;
    end if;
    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, payload)
    select 'control_plane.losses_reported', clock_timestamp(), p_epoch, t.id, 'restores/' || p_epoch,
           jsonb_build_object('part', page.part, 'lost', page.lost, 'missing', p_missing)
    from (select p.tenant_id, p.part, p.lost from jsonb_to_recordset(p_pages) as p (tenant_id uuid, part integer, lost jsonb)
          union all select e.id, 0, '[]' from tenants e where p_anew and p_missing > 0) page
    join tenants t on t.id = page.tenant_id and t.state <> 'deleted'
    order by t.id, page.part;
end $$;
