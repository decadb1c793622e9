-- The units of a node as a mask over its block. One range is the ordinary case and needs no call of this.
create or replace function scattered_mask(p_base bigint, p_units int8multirange) returns bigint language sql immutable strict as $$
    select bit_or(((1::bigint << (upper(part) - lower(part))::integer) - 1) << (lower(part) - p_base)::integer)
    from unnest(p_units) part
$$;
