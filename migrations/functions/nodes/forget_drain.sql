-- A node that is not draining any more has no drain, whichever version of Berth changed its state: an order that was given up
-- must not release allocations of a later drain.
create or replace function forget_drain() returns trigger language plpgsql as $$
begin
    delete from node_drains where node_id = new.id;
    return null;
end $$;
