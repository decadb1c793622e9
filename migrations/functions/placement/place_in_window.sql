-- Places one create on the node and slots that were found free for its window, claims looked at again under the node's lock.
-- Another tenant's hold in the way that is past its deadline by then expires here, with its event. The answers are
-- those of `place_allocations`; `lost`: the world moved meanwhile, and nothing is left behind. Lock order: key, nodes by
-- id, resources by id, reservations by id, quotas in tenant order. Without `wait` a locked node is lost.
create or replace function place_in_window(p_item jsonb) returns jsonb language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    item    record;
    units_  int8multirange;
    stamp   timestamptz;
    busy    boolean;
    overdue uuid[];
    due     uuid[];
    nodes_  uuid[];
    seats   text[];
    answer  jsonb;
begin
    select * into item from jsonb_to_record(p_item) as i(
        n integer, tenant_id uuid, key text, fingerprint text, retire_seconds float8, reservation_retire_seconds float8,
        node_id uuid, mask bigint, ends_at timestamptz, wait boolean);
    insert into operations (scope, key, fingerprint, caller, retire_after)
    values (item.tenant_id, item.key, decode(item.fingerprint, 'hex'), p_item -> 'caller',
            clock_timestamp() + make_interval(secs => item.retire_seconds))
    on conflict do nothing;
    if not found then
        return place_together(jsonb_build_array(p_item), false);
    end if;

    stamp := clock_timestamp();
    select mask_to_units(n.unit_base, item.mask) into units_ from nodes n where n.id = item.node_id;
    if item.ends_at is null or item.ends_at > stamp then     -- a window that is over is refused like any other create
        select r.busy, r.overdue into busy, overdue from rivals_in_window(item.node_id, units_, item.ends_at, stamp) r;
        select array_agg(distinct c.node_id) filter (where c.node_id is not null),
               coalesce(array_agg(distinct c.resource_id) filter (where c.resource_id is not null), '{}')
        into nodes_, seats
        from (select item.node_id, null::text as resource_id
              union all
              select o.node_id, o.resource_id from claims o where o.owner_id = any (overdue) and o.closed_at is null) c;
        if not busy and item.wait then
            perform from nodes n where n.id = any (nodes_) order by n.id for no key update;
        elsif not busy then
            select count(*) < cardinality(nodes_) into busy
            from (select from nodes n where n.id = any (nodes_) order by n.id for no key update skip locked) locked;
        end if;
        if not busy then
            perform from resources r where r.id = any (seats) order by r.id for no key update;
            perform lock_overdue_holds(overdue, true) where cardinality(overdue) > 0;
            stamp := clock_timestamp();
            if item.ends_at is null or item.ends_at > stamp then
                select r.busy, r.overdue into busy, due
                from rivals_in_window(item.node_id, units_, item.ends_at, stamp) r;
                busy := busy or not due <@ overdue or exists (
                    select from slots s where s.node_id = item.node_id and s.state = 'out_of_service'
                    and (item.mask >> s.slot_index) & 1 = 1
                ) or exists (
                    select from claims c where c.owner_id = any (due) and c.closed_at is null
                    and not coalesce(c.node_id = any (nodes_), c.resource_id = any (seats), false));
            end if;
        end if;
        if busy then
            delete from operations where scope = item.tenant_id and key = item.key and status is null;
            return jsonb_build_array(jsonb_build_object('n', item.n, 'outcome', 'lost'));
        end if;
    end if;

    begin
        if cardinality(due) > 0 then
            perform lock_quotas(array(select tenant_id from claims where owner_id = any (due) and closed_at is null)
                                || item.tenant_id);
            perform change_quotas(e.tenants, e.changes) from expire_holds(due, stamp, item.reservation_retire_seconds) e;
        end if;
        answer := place_together(jsonb_build_array(p_item), cardinality(due) > 0);
    exception when sqlstate 'BC001' then
        delete from operations where scope = item.tenant_id and key = item.key and status is null;
        -- The key's operation may have been retired while its allocation is still there: a creation never runs twice.
        answer := jsonb_build_array(coalesce(standing_answer(item.tenant_id, item.key), '{"outcome": "lost"}')
                                    || jsonb_build_object('n', item.n));
    end;
    return answer;
end $$;
