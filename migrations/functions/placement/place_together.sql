-- Place a list of creates whose keys are in `operations`, all or nothing: `judge_creates` selects, this function locks
-- nodes as it chooses them (`held`, with their new fit) and decides, `write_allocations` writes. The outcomes are those of
-- `place_allocations`. An item may have an end (`ends_at`), and may bring its node and slots (`node_id`, `mask`; the caller
-- has locked the node and evaluated its claims): then no other node is tried.
-- Raises BC001 when a constraint refuses a claim or an allocation (the detail names the nodes), BQ001 when a quota moved.
create or replace function place_together(p_items jsonb, p_quota_first boolean) returns jsonb language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    item       record;
    answers    jsonb[] := '{}';
    refused    integer[] := '{}';                            -- places in the list whose fresh operation is deleted again
    tenants_   uuid[] := '{}';
    pending    integer[] := '{}';                            -- GPUs placed for each tenant
    tenant     integer := 0;
    held       uuid[] := '{}';                               -- locked nodes, with their fit after what was placed
    held_pool  integer[] := '{}';
    held_base  bigint[] := '{}';
    held_half  smallint[] := '{}';
    held_mask  bigint[] := '{}';
    held_class integer[] := '{}';
    known      integer;                                      -- the chosen node's place in `held`
    place_     bigint;                                       -- the place of its class in the item's
    node       record;
    placed     integer[] := '{}';                            -- places in the list; where each was put; its slots
    placed_on  integer[] := '{}';
    picks      bigint[] := '{}';
    soonest    timestamptz;
begin
    if p_quota_first then
        perform lock_quotas(array(select (i ->> 'tenant_id')::uuid from jsonb_array_elements(p_items) i));
    end if;
    for item in select * from judge_creates(p_items) loop
        if tenant = 0 or tenants_[tenant] <> item.tenant_id then
            tenant := tenant + 1;
            tenants_ := tenants_ || item.tenant_id;
            pending := pending || 0;
        end if;
        known := null;
        if item.refusal is null and item.gpus_used + pending[tenant] + item.gpus > item.gpus_limit then
            item.refusal := 'quota';
        elsif item.refusal is null then
            -- The best class that a held node is in, then any better class in which an unlocked node is.
            place_ := null;
            if item.node_id is null and item.pool_id = any (held_pool) then
                select h.k, array_position(item.classes, h.class::smallint) into known, place_
                from unnest(held_pool, held_class) with ordinality as h(pool, class, k)
                where h.pool = item.pool_id and array_position(item.classes, h.class::smallint) is not null
                order by 2 limit 1;
            end if;
            if place_ is distinct from 1 then
                node := lock_best_node(item.pool_id, item.shape, item.gpus, item.classes[1:coalesce(place_ - 1, 4096)], held,
                                       case when item.wait then 'wait' else 'skip' end, item.node_id);
                if node.id is not null then
                    place_ := node.place;
                    held := held || node.id;
                    held_pool := held_pool || item.pool_id;
                    held_base := held_base || node.unit_base;
                    held_half := held_half || node.half_slots;
                    held_mask := held_mask || node.free_mask;
                    known := cardinality(held);              -- its class is computed below
                end if;
            end if;
        end if;
        if known is null then
            answers := answers || refused_create(item, pending[tenant]);
            refused := refused || item.n;
            continue;
        end if;
        picks := picks || coalesce(
            item.mask, pick_slots(held_mask[known], held_half[known], item.lows[place_], item.highs[place_]));
        held_mask[known] := held_mask[known] & ~picks[cardinality(picks)];
        held_class[known] := class_of_mask(held_mask[known], held_half[known]);
        pending[tenant] := pending[tenant] + item.gpus;
        soonest := least(soonest, item.ends_at);
        placed := placed || item.n;
        placed_on := placed_on || known;
    end loop;
    return to_jsonb(answers || settle_creates(
        p_items, soonest, refused, tenants_, pending, held, held_base, held_mask, held_class, placed, placed_on, picks));
end $$;
