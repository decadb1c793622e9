-- Raises every sequence above what the lost interval may have drawn, once for the restore with this epoch: fences by 2^40, others by
-- 2^32, those of 32 bits and those with a lower maximum by 65,536, as far as their maximum allows. Returns whether this call did it.
-- A sequence that was raised by a call which was interrupted is raised again. Versions are skipped up to 2^20 above all that are known,
-- unless the rebuild of the stream has done that. Raises BR001 if the restore is not open.
create or replace function restore_raise_sequences(p_epoch uuid) returns boolean
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    raising record;
    drawn   record;
begin
    raising := restore_lock_open(p_epoch);
    if raising.raised_at is not null then
        return false;
    end if;
    for drawn in
        select format('%I.%I', s.schemaname, s.sequencename) as name, coalesce(s.last_value, s.start_value) as last,
               s.max_value as most, s.increment_by as step,
               case when s.sequencename = 'fences' then 1099511627776
                    when s.max_value = 9223372036854775807 then 4294967296 else 65536 end as raise
        from pg_sequences s where s.schemaname = 'public'
    loop
        perform setval(drawn.name, least(drawn.last + drawn.raise * drawn.step, drawn.most));
    end loop;
    if (select s.skipped_to from log_stream s) <= raising.head_version then
        perform log_skip_versions(h.version + 1, h.version + coalesce(raising.export_events, 0), 1048576) from log_head h;
    end if;
    update restores set raised_at = clock_timestamp() where epoch = p_epoch;
    return true;
end $$;
