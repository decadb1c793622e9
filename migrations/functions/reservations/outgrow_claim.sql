-- A resource's `row_version` is what is stored and what has passed since: one for each step that a reservation's open claim
-- has gone by itself (its window began, it was confirmed, its window is over). When such a claim goes, or becomes another's,
-- all of these go with it; this adds one more than they can be, so that what is shown only ever grows.
create or replace function outgrow_claim(p_node uuid, p_resource text) returns void language plpgsql set enable_seqscan = off as $$
begin
    update nodes set row_version = row_version + 4 where id = p_node;
    update resources set row_version = row_version + 4 where id = p_resource;
end $$;
