-- Claim, at the end of the transaction that ended an allocation's right, what maintenance windows planned on its units. That
-- transaction holds the node's lock, so no create can take the units first. Runs as the owner of the schema: each process
-- that ends an allocation fires it, and none of them needs a right to the windows.
create or replace function claim_freed_units() returns trigger
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    planned_ record;
begin
    for planned_ in
        select u.window_id from maintenance_units u join maintenance_windows w on w.id = u.window_id
        where u.node_id = new.node_id and not isempty(u.planned) and u.planned && new.units
        order by w.starts_at, w.id
    loop
        perform claim_maintenance(planned_.window_id, new.node_id);
    end loop;
    return null;
end $$;
