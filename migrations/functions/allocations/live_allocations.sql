-- How many live allocations are in each state, and since when the oldest of them waits. Sequential scans are disabled:
-- without statistics the planner takes every row for a live one.
create or replace function live_allocations() returns table (state text, found bigint, waits_since timestamptz)
language sql stable set enable_seqscan = off
begin atomic
    select a.state, count(*), min(a.waits_since) from allocations a where a.state not in ('released', 'failed') group by a.state;
end;
