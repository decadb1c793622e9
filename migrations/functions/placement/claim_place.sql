create or replace function claim_place(c claims) returns jsonb language sql stable as $$
    select jsonb_build_object('node_id', c.node_id, 'fence', c.fence,
        'units', (select jsonb_agg(jsonb_build_array(lower(part), upper(part)) order by part) from unnest(c.units) part))
$$;
