-- The lowest free slots of a node: `p_low` of its first NUMA half and `p_high` of its second.
create or replace function pick_slots(p_free bigint, p_half smallint, p_low integer, p_high integer) returns bigint
language sql immutable as $$
    select lowest_bits(p_free & ((1::bigint << p_half) - 1), p_low) | (lowest_bits(p_free >> p_half, p_high) << p_half)
$$;
