-- Skips the versions that readers may have got in the lost interval of the restore with this epoch, unless the rebuild of the stream
-- has done that, and every version up to `p_highest`, the highest one that an operator knows to have been read (0: none is known).
-- Returns the last version that is skipped; null if this call skipped none. Raises BR001 if the restore is not open.
create or replace function restore_skip_versions(p_epoch uuid, p_highest bigint) returns bigint
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    skipping restores;
    head     bigint;
    spare    bigint := 0;
begin
    skipping := restore_lock_open(p_epoch);
    select h.version into head from log_head h for update;
    if (select s.skipped_to from log_stream s) <= skipping.head_version then
        spare := log_spare_versions(head + 1);
    elsif p_highest <= head then
        return null;
    end if;
    perform log_skip_versions(head + 1, greatest(head + coalesce(skipping.export_events, 0), p_highest), spare);
    return (select s.skipped_to from log_stream s);
end $$;
