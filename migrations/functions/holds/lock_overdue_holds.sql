-- Lock those of these reservations that are holds past their deadline, in the order of the ids, and return how many.
-- `p_wait` false: without those that another transaction has locked.
-- It runs as the owner, because they are of any tenant (decision 0025).
create or replace function lock_overdue_holds(p_ids uuid[], p_wait boolean) returns bigint language plpgsql
security definer set search_path = public, pg_temp set enable_seqscan = off as $$
declare
    found_ bigint;
begin
    -- What has ended meanwhile is not locked: the caller decides again under the locks.
    if p_wait then
        select count(*) into found_ from (
            select from reservations r
            where r.id = any (p_ids) and r.state = 'hold' and r.expires_at <= clock_timestamp()
            order by r.id for no key update) locked;
    else
        select count(*) into found_ from (
            select from reservations r
            where r.id = any (p_ids) and r.state = 'hold' and r.expires_at <= clock_timestamp()
            order by r.id for no key update skip locked) locked;
    end if;
    return found_;
end $$;
