-- Likewise where somebody must act, or need not any more: units of an ended right change their state, and nothing of the
-- node does. Whoever changes a claim has its node's lock.
create or replace function outgrow_blocked_claim() returns trigger language plpgsql as $$
begin
    update nodes set row_version = row_version + 1 where id = new.node_id;
    return null;
end $$;
