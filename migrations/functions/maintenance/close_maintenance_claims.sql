-- End the right of a maintenance window to all of its units. The caller has locked its nodes and the window.
create or replace function close_maintenance_claims(p_window uuid) returns void language plpgsql set enable_seqscan = off as $$
declare
    node_ uuid;
begin
    update claims set booked = false, closed_at = clock_timestamp(), fence = nextval('fences')
    where owner_id = p_window and owner_kind = 'maintenance' and closed_at is null;
    update maintenance_units set planned = '{}' where window_id = p_window and not isempty(planned);
    for node_ in select u.node_id from maintenance_units u where u.window_id = p_window order by u.node_id loop
        perform bump_row_versions(node_, null);
        perform refresh_node_fit(node_);
    end loop;
end $$;
