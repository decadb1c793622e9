-- Record the heartbeats of nodes that change nothing but times and what the agent says of itself: one of each node.
-- Return, by node id, `state`, `at` (the clock) and `etag` of its networks. A node that is not in it is left as it is: its
-- certificate does not count, it was offline, is refused, has moved, its networks or its inventory say something new, or
-- another transaction holds it. Then a separate transaction decides (orchestrator/nodes/commands/heartbeat.py).
-- It waits for no lock, so no node delays the others. The inventory is evaluated after the locks, which every change of the
-- node's allocations takes first.
create or replace function note_heartbeats(p_reports jsonb) returns jsonb language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    locked  uuid[];
    newer   uuid[];
    changed uuid[];
    answers jsonb;
begin
    locked := array(
        select n.id from heartbeat_reports(p_reports) i
        join node_certificates c on c.serial = i.serial and c.node_id = i.node_id
        join nodes n on n.id = c.node_id and n.epoch = c.node_epoch
        join pools p on p.id = n.pool_id
        where c.revoked_at is null and c.not_after > clock_timestamp()
          and n.online and n.state <> 'retired' and n.identity_conflict_at is null
          and i.is_allowed and i.driver = n.driver and coalesce(p.driver = i.driver, i.is_sandbox)
          and i.underlay is not distinct from n.underlay
          and ('network_vlan' = any (i.features)) = ('network_vlan' = any (n.agent_features))
        for no key update of n skip locked);
    -- Not one of a time that has not come, or of an older one: a late or lying report moves nothing back. Nor one of before the
    -- node was registered: PostgreSQL keeps years that Python cannot read.
    newer := array(
        select n.id from heartbeat_reports(p_reports) i join nodes n on n.id = i.node_id
        where n.id = any (locked) and i.gathered_after between n.created_at and clock_timestamp()
          and (n.inventory_after is null or n.inventory_after < i.gathered_after));
    changed := array(
        select n.id from heartbeat_reports(p_reports) i join nodes n on n.id = i.node_id
        where n.id = any (locked) and (
            i.connects and i.etag is distinct from (select w.etag from networks_on_node(n.id) w)
            or n.id = any (newer) and exists (select from differing_allocations(n.id, i.inventory, i.gathered_after))));
    with noted as (
        update nodes n set
            agent_version = i.agent_version, agent_features = i.features, key_set_serial = i.key_set_serial,
            key_set_refusal = i.key_set_refusal, agent_run = coalesce(i.agent_run, n.agent_run),
            last_seen_at = clock_timestamp(), held_allocations = i.allocations,
            inventory = case when n.id = any (newer) then i.inventory else n.inventory end,
            inventory_after = case when n.id = any (newer) then i.gathered_after else n.inventory_after end
        from heartbeat_reports(p_reports) i
        where n.id = i.node_id and n.id = any (locked) and n.id <> all (changed)
        returning n.id, n.state, n.last_seen_at, i.connects, i.etag
    )
    select coalesce(jsonb_object_agg(id, jsonb_build_object('state', state, 'at', rfc3339(last_seen_at), 'etag', etag)), '{}')
    into answers from noted;
    return answers;
end $$;
