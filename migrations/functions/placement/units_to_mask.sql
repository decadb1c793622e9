create or replace function units_to_mask(p_base bigint, p_units int8multirange) returns bigint language sql immutable as $$
    select case when p_units = int8multirange(range_merge(p_units))
                then ((1::bigint << (upper(p_units) - lower(p_units))::integer) - 1) << (lower(p_units) - p_base)::integer
                else scattered_mask(p_base, p_units) end
$$;
