-- Gives up to `p_limit` waiting events their versions, then returns the head: `version` is at least as new as every write
-- that was committed before the call. `leader_id` is this Postgres on its present timeline, `accepted_leader_id` the
-- accepted writer of the log, each with the log's epoch, as in the rows that they sequence. One function, because each of its statements has a new snapshot: the head that a statement
-- around it would read is the one before another session's sequencing.
create or replace function log_sequence(p_limit integer, out moved integer, out version bigint, out leader_id text,
                             out accepted_leader_id text) language plpgsql as $$
begin
    moved := log_advance(p_limit);
    select h.version, postgres_leader_id() || '-' || h.epoch, h.leader_id || '-' || h.epoch into version, leader_id, accepted_leader_id from log_head h;
end $$;
