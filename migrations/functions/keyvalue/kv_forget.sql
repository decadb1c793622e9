-- Forgets up to `p_limit` deleted keys whose deletion is older than the log; answers how many. No precondition can be judged
-- by a version as old as that. Within the same limit it removes the keys of deleted tenants, which nothing reads any more.
create or replace function kv_forget(p_limit integer) returns integer language plpgsql set enable_seqscan = off as $$
declare
    one     record;
    removed integer := 0;
    freed   bigint;
    number  bigint;
begin
    for one in
        select c.namespace, max(c.mark) as mark from (
            select k.namespace, k.mark, k.event_id from kv_keys k where k.value is null order by k.mark limit p_limit
        ) c
        where not exists (select from outbox o where o.id = c.mark) and not exists (select from log l where l.event_id = c.event_id)
        group by c.namespace order by c.namespace
    loop
        perform from kv_namespaces n where n.id = one.namespace for no key update;
        with gone as (
            delete from kv_keys k where k.namespace = one.namespace and k.value is null and k.mark <= one.mark
            returning octet_length(k.key) as size
        )
        select count(*), coalesce(sum(size), 0) into number, freed from gone;
        update kv_namespaces n set keys = n.keys - number, bytes = n.bytes - freed where n.id = one.namespace;
        removed := removed + number;
    end loop;
    for one in
        select n.id as namespace from kv_namespaces n join tenants t on t.id = n.id
        where t.state = 'deleted' and n.keys > 0 order by n.id
    loop
        exit when removed >= p_limit;
        perform from kv_namespaces n where n.id = one.namespace for no key update skip locked;
        continue when not found;                             -- the loop above may hold one with a higher id
        with gone as (
            delete from kv_keys k where k.namespace = one.namespace and k.key in (
                select o.key from kv_keys o where o.namespace = one.namespace order by o.key limit p_limit - removed)
            returning octet_length(k.key) + coalesce(octet_length(k.value), 0) as size
        )
        select count(*), coalesce(sum(size), 0) into number, freed from gone;
        update kv_namespaces n set keys = n.keys - number, bytes = n.bytes - freed where n.id = one.namespace;
        removed := removed + number;
    end loop;
    return removed;
end $$;
