-- Records why the restore with this epoch goes on without an export of the lost interval; an export that exists stays, and so does
-- the first reason. Returns whether this call recorded it. Raises BR001 if the restore is not open.
create or replace function restore_waive_export(p_epoch uuid, p_reason text) returns boolean
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    noted restores;
begin
    noted := restore_lock_open(p_epoch);
    if noted.exported_at is not null or noted.without_export is not null then
        return false;
    end if;
    update restores r set without_export = p_reason where r.epoch = p_epoch;
    insert into audit (principal_kind, principal_id, action, subject, detail)
    values ('system', 'berth restore', 'restore.waive_export', 'restores/' || p_epoch, jsonb_build_object('reason', p_reason));
    return true;
end $$;
