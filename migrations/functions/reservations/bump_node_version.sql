-- A claim that starts or stops waiting for an operator changes the state of its units, and nothing else of the node. The
-- transaction that changes a claim holds its node's lock.
create or replace function bump_node_version() returns trigger language plpgsql as $$
begin
    update nodes set row_version = row_version + 1 where id = new.node_id;
    return null;
end $$;
