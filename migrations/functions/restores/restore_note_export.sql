-- Records that the events of the lost interval were exported: how many, and the SHA-256 of the file. A repetition replaces it. Returns
-- false, without effect, once versions were given since the restore began: the stream may have been made anew. Raises BR001 if the
-- restore with this epoch is not open.
create or replace function restore_note_export(p_epoch uuid, p_events bigint, p_sha256 bytea) returns boolean
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    noted restores;
begin
    noted := restore_lock_open(p_epoch);
    if (select h.version from log_head h) <> noted.head_version then
        return false;
    end if;
    update restores r set exported_at = clock_timestamp(), export_events = p_events, export_sha256 = p_sha256, without_export = null
    where r.epoch = p_epoch;
    insert into audit (principal_kind, principal_id, action, subject, detail)
    values ('system', 'berth restore', 'restore.export', 'restores/' || p_epoch,
            jsonb_build_object('events', p_events, 'sha256', encode(p_sha256, 'hex')));
    return true;
end $$;
