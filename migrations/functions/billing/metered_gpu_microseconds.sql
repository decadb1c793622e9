-- Metered GPU time in microseconds, never negative: a clock that was set back bills nothing.
create or replace function metered_gpu_microseconds(p_gpus integer, p_from timestamptz, p_until timestamptz) returns numeric
language sql immutable as $$
    select p_gpus * greatest(0, trunc((extract(epoch from p_until) - extract(epoch from p_from)) * 1000000))
$$;
