-- Locks the restore with this epoch. Raises BR001 if it is not open.
create or replace function restore_lock_open(p_epoch uuid) returns restores language plpgsql as $$
declare
    locked restores;
begin
    select * into locked from restores r where r.epoch = p_epoch and r.closed_at is null for update;
    if not found then
        raise exception 'restore % is not open', p_epoch using errcode = 'BR001';
    end if;
    return locked;
end $$;
