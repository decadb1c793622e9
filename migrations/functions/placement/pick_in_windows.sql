-- The list of holds, with `picks` (and their slots as named slots) for each hold of one node whose pool has room in its
-- window. Slots that are free without an end come first, then those that are free in the window; no two holds of the list
-- get the same. Reads without locks; the caller decides again under its locks. A hold without picks found no candidate here.
create or replace function pick_in_windows(p_items jsonb) returns jsonb language plpgsql as $$
declare
    now_    constant timestamptz := clock_timestamp();
    items   jsonb := p_items;
    left_   bigint[];                                        -- holds that have no pick yet
    found_  record;
    busy    bigint;
    place_  integer;
    taken   bigint;
    nodes_  uuid[] := '{}';                                  -- the picks of this list: node, slots, window
    masks   bigint[] := '{}';
    windows tstzrange[] := '{}';
begin
    select array_agg(i.n) into left_ from holds_of(p_items) i
    where i.pool_id is not null and i.picks is null and i.quantity = 1 and (i.starts_at is not null or i.ends_at is not null)
      and greatest(i.starts_at, now_) < coalesce(i.ends_at, 'infinity');
    if left_ is null then
        return p_items;
    end if;
    for pass in 1..2 loop
        for found_ in
            select f.*, i.classes, i.lows, i.highs, tstzrange(greatest(i.starts_at, now_), i.ends_at) as during
            from (select * from free_always_for(p_items, left_, 32) where pass = 1
                  union all
                  select * from free_in_windows_for(p_items, left_, now_, 8) where pass = 2) f
            join holds_of(p_items) i on i.n = f.n
        loop
            continue when found_.n <> all (left_);
            select coalesce(bit_or(p.mask), 0) into busy from unnest(nodes_, masks, windows) p(node, mask, during)
            where p.node = found_.node_id and (pass = 1 or p.during && found_.during);
            place_ := array_position(found_.classes, class_of_mask(found_.mask & ~busy, found_.half_slots)::smallint);
            continue when place_ is null;
            taken := pick_slots(found_.mask & ~busy, found_.half_slots, found_.lows[place_], found_.highs[place_]);
            nodes_ := nodes_ || found_.node_id;
            masks := masks || taken;
            windows := windows || found_.during;
            left_ := array_remove(left_, found_.n);
            items := jsonb_set(items, array[(found_.n - 1)::text], (items -> (found_.n - 1)::integer) || jsonb_build_object(
                'picks', jsonb_build_array(jsonb_build_object('node', found_.node_id, 'mask', taken)),
                'nodes', '[]'::jsonb, 'registered', '[]'::jsonb,
                'slots', (select jsonb_agg(jsonb_build_object('node', found_.node_id, 'index', slot))
                          from generate_series(0, 62) slot where taken >> slot & 1 = 1)));
        end loop;
        exit when cardinality(left_) = 0;
    end loop;
    return items;
end $$;
