-- Store the versions of operations whose last event is in the log from `p_first` up to, but not including, `p_end`, at most
-- `p_limit` of them; return how many. `p_until`: the events are older than this, so the operations are, but for a transaction.
create or replace function store_operation_versions(p_first bigint, p_end bigint, p_until timestamptz, p_limit integer)
returns integer language plpgsql as $$
declare
    stored integer;
begin
    with due as materialized (
        select o.scope, o.key, l.version, l.leader_id from operations o join log l on l.event_id = o.event_id
        where o.version is null and o.created_at < p_until + interval '1 hour' and l.version >= p_first and l.version < p_end
        limit p_limit
    )
    update operations o set version = d.version, leader_id = d.leader_id
    from due d where o.scope = d.scope and o.key = d.key;
    get diagnostics stored = row_count;
    return stored;
end $$;
