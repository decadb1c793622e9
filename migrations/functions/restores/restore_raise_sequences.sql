-- Raises every sequence above what the lost interval may have drawn, once for the restore with this epoch: fences by 2^40, others by
-- 2^32, those of 32 bits and those with a lower maximum by 65,536, as far as their maximum allows. Returns whether this call did it.
-- A sequence that was raised by a call which was interrupted is raised again. Versions are skipped
-- (restore_skip_versions). Raises BR001 if the restore is not open.
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
    perform restore_skip_versions(p_epoch, 0);
    update restores set raised_at = clock_timestamp() where epoch = p_epoch;
    return true;
end $$;
