-- Wait for others that change places or repairs of these serial numbers; released at the end of the transaction. In the order of
-- their hashes, so that two never wait for each other.
create or replace function lock_serials(p_serials text[]) returns void language plpgsql as $$
declare
    number integer;
begin
    for number in select distinct hashtext(serial) from unnest(p_serials) serial order by 1 loop
        perform pg_advisory_xact_lock(hashtext('hardware'), number);
    end loop;
end $$;
