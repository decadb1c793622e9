-- Ends the right to everything that a reservation still holds; nothing can be on it. The caller has locked its nodes,
-- resources and itself.
create or replace function close_reservation_claims(p_id uuid) returns void language plpgsql set enable_seqscan = off as $$
declare
    gone record;
    last_node uuid;
begin
    for gone in
        with closed as (
            update claims set booked = false, closed_at = clock_timestamp(), fence = nextval('fences')
            where owner_id = p_id and owner_kind = 'reservation' and closed_at is null
            returning node_id, resource_id
        ) select node_id, resource_id from closed order by node_id, resource_id
    loop
        perform bump_row_versions(gone.node_id, gone.resource_id);
        if gone.node_id is distinct from last_node then
            perform refresh_node_fit(gone.node_id);
            last_node := gone.node_id;
        end if;
    end loop;
end $$;
