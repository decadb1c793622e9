-- What that costs, in whole micro-units, rounded down once, for the time since the interval began. What a part of an interval
-- costs is the difference of two of these, so that parts always add up to the whole.
create or replace function metered_micro_units(p_gpus integer, p_price bigint, p_from timestamptz, p_until timestamptz) returns numeric
language sql immutable as $$
    select div(metered_gpu_microseconds(p_gpus, p_from, p_until) * p_price, 1000000)
$$;
