-- The reservation with `gpus_held` as at its hold: the GPUs that it still holds and those of its allocations.
create or replace function as_held(r reservations) returns reservations language plpgsql stable set enable_seqscan = off as $$
begin
    r.gpus_held := r.gpus_held + coalesce((select sum(a.gpus) from allocations a where a.reservation_id = r.id), 0);
    return r;
end $$;
