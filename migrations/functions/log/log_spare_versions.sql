-- How many versions above the highest known one readers may have got since the event before `p_diverged`: 131,072 for each second
-- since then, by this server's clock, and at least 2^20. The log has never been sequenced as fast (100,000/s, decision 0072). A log
-- without such an event was begun when the cluster was made.
create or replace function log_spare_versions(p_diverged bigint) returns bigint language sql stable as $$
    select greatest(1048576, ceil(131072 * extract(epoch from clock_timestamp() - coalesce(
        (select l.occurred_at from log l where l.version < p_diverged order by l.version desc limit 1),
        (select to_timestamp((s.system_identifier >> 32) & 4294967295) from pg_control_system() s))))::bigint)
$$;
