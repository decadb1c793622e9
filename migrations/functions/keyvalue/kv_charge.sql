-- The day's use of a locked namespace with the bytes that a transaction writes to the log or to its stored response; `total`
-- is null if they would exceed the quota. Raises BK001 instead if the transaction is alone. The day begins at 00:00 UTC.
-- Runs under the planner settings of `kv_commit`: setting them again costs more than the call.
create or replace function kv_charge(p_item record, p_space record, p_bytes bigint, out day date, out total bigint)
language plpgsql as $$
declare
    used_ bigint := 0;
    bound constant bigint := coalesce((p_space.limits ->> 'log_bytes_per_day')::bigint, p_item.log_bytes_max);
begin
    day := (clock_timestamp() at time zone 'UTC')::date;
    if p_space.log_day = day then
        used_ := p_space.log_bytes;
    end if;
    if used_ + p_bytes <= bound or bound is null then
        total := used_ + p_bytes;
    elsif p_item.alone then
        perform kv_full(p_item.namespace, 'log_bytes_per_day', bound, used_);
    end if;
end $$;
