-- Makes sure that every partition from the head's to two after that of `p_version` exists; answers how many it made.
-- There is no DEFAULT partition: it would forbid detaching concurrently, so a missing partition must never happen and two
-- are kept ahead. ATTACH rather than CREATE ... PARTITION OF: the latter takes ACCESS EXCLUSIVE on `log`, so one long
-- reader would stop the log, and every session behind it.
create or replace function log_extend(p_version bigint) returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    head  record;
    first bigint;
    made  integer := 0;
begin
    select version, partition_versions into head from log_head for update;
    for k in head.version / head.partition_versions .. p_version / head.partition_versions + 2 loop
        first := k * head.partition_versions;
        if to_regclass(format('log_from_%s', first)) is null then
            execute format('create table log_from_%s (like log including all)', first);
            execute format('alter table log attach partition log_from_%s for values from (%s) to (%s)',
                           first, first, first + head.partition_versions);
            made := made + 1;
        end if;
    end loop;
    return made;
end $$;
