-- The networks that have guests on a node which connects its networks: their etag, their ids, and the node's underlay address.
-- By published ports, since each address has one and they are few on a node. Nothing for a node whose identity is in conflict.
create or replace function networks_on_node(p_node uuid) returns table (etag text, networks uuid[], underlay inet)
language sql stable as $$
select coalesce(md5(string_agg(format('%s %s %s%s', w.id, w.members_version, h.underlay, h.by_vlan), ',' order by w.id)), ''),
       coalesce(array_agg(w.id), '{}'), min(h.underlay)
from (
    select distinct x.network_id, own.underlay, case when 'network_vlan' = any (own.agent_features) then ' vlan' end as by_vlan
    from nodes own
    join published_ports p on p.node_id = own.id
    join network_addresses x on x.allocation_id = p.allocation_id
    where own.id = p_node and own.underlay is not null and own.identity_conflict_at is null
) h join networks w on w.id = h.network_id
$$;
