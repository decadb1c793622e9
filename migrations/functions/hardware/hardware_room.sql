-- How many entries an agent's reports may still add to the history: 512 of a node within 30 days by discovery, and as many by
-- probes. A machine has at most 104 GPUs and disks; what operators and tenants do is not counted.
create or replace function hardware_room(p_node uuid, p_actor text) returns integer language sql stable
    set enable_seqscan = off as $$
    select 512 - count(*)::integer from (
        select from hardware_history
        where node_id = p_node and actor = p_actor and actor in ('worker:discovery', 'worker:probe')
          and happened_at > (select clock_timestamp() - interval '30 days') limit 512
    ) lately
$$;
