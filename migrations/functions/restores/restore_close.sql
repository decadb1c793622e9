-- Closes the restore with this epoch: processes serve from now on. Returns whether this call closed it. Raises BR001 if it is not
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
    update restores set closed_at = clock_timestamp() where epoch = p_epoch;
    insert into audit (principal_kind, principal_id, action, subject, detail)
    values ('system', 'berth restore', 'restore.close', 'restores/' || p_epoch, '{}');
    return true;
end $$;
