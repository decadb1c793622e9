-- Reading the log: where it begins, and one look at where it ends.

create table log_first (
    one     boolean primary key default true check (one),
    version bigint not null check (version > 0)              -- the lowest version kept; those below it are truncated
);
insert into log_first (version)
select coalesce((select version from log order by version limit 1), (select version + 1 from log_head));

-- Gives up to `p_limit` waiting events their versions, then tells the head: `version` is at least as new as every write
-- that was committed before the call. `leader_id` is this Postgres on its present timeline, `accepted_leader_id` the one
-- that the log was told to be written by. In one function, because each of its statements has a snapshot of its own: the
-- head that a statement around it would read is the one before another session's sequencing.
create function log_sequence(p_limit integer, out moved integer, out version bigint, out leader_id text,
                             out accepted_leader_id text) language plpgsql as $$
begin
    moved := log_advance(p_limit);
    select h.version, postgres_leader_id(), h.leader_id into version, leader_id, accepted_leader_id from log_head h;
end $$;
