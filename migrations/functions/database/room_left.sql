-- How many more rows of this kind `p_bound` allows, those of this transaction counted; negative beyond it. Near the bound
-- transactions that add rows go one at a time until they commit, so the answer holds; far from it none waits.
create or replace function room_left(p_kind text, p_bound bigint) returns bigint language plpgsql as $$
declare
    near constant bigint := 10000;                           -- more than all sessions together add before they commit
    room bigint;
begin
    select p_bound - coalesce(sum(number), 0) into room from live_rows where kind = p_kind;
    if room < near then
        perform pg_advisory_xact_lock(hashtext('live_rows'), hashtext(p_kind));
        select p_bound - coalesce(sum(number), 0) into room from live_rows where kind = p_kind;
    end if;
    return room;
end $$;
