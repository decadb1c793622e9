-- Write what `place_together` decided: allocations, the nodes' new fit, no operations of refused items, quotas last.
-- Return one outcome for each allocation. Raises BC001 if an item's window ended before it was placed or during the wait
-- for a quota, and what `write_allocations` and `change_quotas` raise.
-- Runs under the planner settings of its caller: setting them again costs more than the call.
create or replace function settle_creates(
    p_items jsonb, p_soonest timestamptz, p_refused integer[], p_tenants uuid[], p_gpus integer[], p_nodes uuid[],
    p_bases bigint[], p_masks bigint[], p_classes integer[], p_placed integer[], p_placed_on integer[], p_picks bigint[]
) returns jsonb[] language plpgsql as $$
declare
    stamp constant timestamptz := clock_timestamp();         -- when all of it begins: after the locks
    made  jsonb[] := '{}';
begin
    if cardinality(p_placed) > 0 then
        if p_soonest <= stamp then
            raise exception 'a window was over before its turn came'
                using errcode = 'BC001', detail = array_to_string(p_nodes, ' ');
        end if;
        made := write_allocations(p_items, stamp, p_nodes, p_bases, p_placed, p_placed_on, p_picks);
        update nodes set free_mask = h.mask, fit_class = h.class, row_version = row_version + 1
        from unnest(p_nodes, p_masks, p_classes) as h(id, mask, class) where nodes.id = h.id;
    end if;
    if cardinality(p_refused) > 0 then
        delete from operations o
        using unnest(p_refused) as r(n) join jsonb_to_recordset(p_items) as i(n integer, tenant_id uuid, key text) on i.n = r.n
        where o.scope = i.tenant_id and o.key = i.key and o.status is null;
    end if;
    if cardinality(p_placed) > 0 then
        perform change_quotas(p_tenants, p_gpus);
        if p_soonest <= clock_timestamp() then               -- it may have waited for a quota
            raise exception 'a window was over before its turn came'
                using errcode = 'BC001', detail = array_to_string(p_nodes, ' ');
        end if;
    end if;
    return made;
end $$;
