-- Why the task of a maintenance window cannot begin on a node now; null: it can. `units`: the window does not have all of its
-- units there, or something of another owner is on them: a guest that is not cleaned up, or an orphan. `busy`: a burn-in or a
-- reset of GPUs is open, or the task of another window runs on the node: one_maintenance_task allows one.
create or replace function maintenance_task_obstacle(p_window uuid, p_node uuid) returns text language plpgsql stable
set enable_seqscan = off as $$
declare
    wanted int8multirange;
    taken  int8multirange;
begin
    if not exists (select from nodes n where n.id = p_node and n.online and n.identity_conflict_at is null) then
        return 'offline';
    end if;
    select u.units into wanted from maintenance_units u
    where u.window_id = p_window and u.node_id = p_node and isempty(u.planned);
    select range_agg(part) into taken from claims c cross join lateral unnest(c.units) part
    where c.node_id = p_node and c.closed_at is null and c.booked and c.owner_id = p_window and c.during @> clock_timestamp();
    if not coalesce(wanted <@ taken, false)
       or exists (select from claims c where c.node_id = p_node and c.closed_at is null and c.occupied and c.owner_id <> p_window
                                         and c.units && wanted)
       or exists (select from node_orphans o join slots s on s.node_id = o.node_id and s.slot_index = any (o.slots)
                  where o.node_id = p_node and o.state <> 'destroyed' and wanted @> s.unit) then
        return 'units';
    end if;
    if exists (select from node_burn_ins b where b.node_id = p_node and b.ended_at is null)
       or exists (select from node_gpu_resets r where r.node_id = p_node and r.ended_at is null)
       or exists (select from maintenance_tasks m
                  where m.node_id = p_node and m.state = 'running' and m.window_id <> p_window) then
        return 'busy';
    end if;
    return null;
end $$;
