-- Raise the row versions of a node and of a resource when a reservation's claim on them closes or moves. A resource's
-- `row_version` is what is stored plus one for each step that the open claim has taken by time alone (its window began, it was
-- confirmed, its window is over). These steps go with the claim; 4 is more than they can be, so the version only grows.
create or replace function bump_row_versions(p_node uuid, p_resource text) returns void language plpgsql set enable_seqscan = off as $$
begin
    update nodes set row_version = row_version + 4 where id = p_node;
    update resources set row_version = row_version + 4 where id = p_resource;
end $$;
