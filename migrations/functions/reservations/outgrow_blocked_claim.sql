-- Bumps the node's row version when an operator must act on units or need not any more: units of an ended right change their
-- state, and no column of the node does. A change of a claim holds its node's lock.
create or replace function outgrow_blocked_claim() returns trigger language plpgsql as $$
begin
    update nodes set row_version = row_version + 1 where id = new.node_id;
    return null;
end $$;
