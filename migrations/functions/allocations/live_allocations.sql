-- How many live allocations are in each state, and since when the one that has waited longest does. With whole tables out of
-- the question: one of which nothing is known looks as if all of its rows were live.
create or replace function live_allocations() returns table (state text, found bigint, waits_since timestamptz)
language sql stable set enable_seqscan = off
begin atomic
    select a.state, count(*), min(a.waits_since) from allocations a where a.state not in ('released', 'failed') group by a.state;
end;
