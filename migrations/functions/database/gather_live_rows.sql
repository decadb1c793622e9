-- Moves the counts of ended backends to this backend's stripe; returns how many stripes it moved. If a process number is in use
-- again, its stripe may be moved too: that process makes a new one.
create or replace function gather_live_rows() returns integer language plpgsql as $$
declare
    gone integer;
begin
    with left_behind as (
        select kind, stripe from live_rows l
        where l.stripe <> pg_backend_pid() and not exists (select from pg_stat_activity a where a.pid = l.stripe)
        for update skip locked
    ), taken as (
        delete from live_rows l using left_behind b where l.kind = b.kind and l.stripe = b.stripe
        returning l.kind, l.number
    ), summed as (
        select kind, sum(number)::bigint as number, count(*) as stripes from taken group by kind
    ), counted as (
        select count_live(kind, number), stripes from summed
    )
    select coalesce(sum(stripes), 0) into gone from counted;
    return gone;
end $$;
