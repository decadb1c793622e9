-- Takes every slot out of service until its node has sent a complete inventory after the restore with this epoch. Returns how many
-- nodes that are. Repeating it changes nothing. Raises BR001 if the restore is not open.
-- What it writes to slots and fits is what keep_slots_v2 and refresh_node_fit write; one statement for all nodes takes seconds.
create or replace function restore_close_nodes(p_epoch uuid) returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    awaited integer;
begin
    perform restore_lock_open(p_epoch);
    insert into awaited_inventories as w (node_id, epoch)
    select n.id, p_epoch from nodes n where n.state <> 'retired'
    on conflict (node_id) do update set epoch = excluded.epoch, since = excluded.since where w.epoch <> excluded.epoch;
    update nodes n set free_mask = 0, fit_class = 0, row_version = n.row_version + 1
    from awaited_inventories w
    where w.node_id = n.id and w.epoch = p_epoch and (n.free_mask <> 0 or n.fit_class <> 0);
    update slots s set state = 'out_of_service',
                       reason = 'the inventory of its node is awaited after a restore; see berth restore nodes'
    from awaited_inventories w where w.node_id = s.node_id and w.epoch = p_epoch and s.state = 'in_service';
    select count(*) into awaited from awaited_inventories w where w.epoch = p_epoch;
    return awaited;
end $$;
