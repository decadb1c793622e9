-- The fit class of a mask of free slots: free slots in the first NUMA half * 64 + free slots in the second.
create or replace function class_of_mask(p_free bigint, p_half smallint) returns integer language sql immutable as $$
    select 64 * bit_count((p_free & ((1::bigint << p_half) - 1))::bit(64))::integer
         + bit_count((p_free >> p_half)::bit(64))::integer
$$;
