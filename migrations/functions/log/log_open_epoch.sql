-- Opens another epoch of the log and returns it: rows that are sequenced from now on carry it, and a version of an earlier one
-- satisfies no precondition. Called where a history begins: a timeline is continued or accepted, or the stream of another history
-- is replaced. A copied data directory has the leader id of its origin, and from its acceptance on another epoch.
create or replace function log_open_epoch() returns text
language sql security definer set search_path = public, pg_temp as $$
    update log_head set epoch = left(gen_random_uuid()::text, 8) returning epoch
$$;
