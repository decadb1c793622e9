-- Gives up to `p_limit` waiting events their versions; answers how many, and what of `p_events`, which are newer than
-- `p_after`, has a version by now, as `{event: [version, leader]}`. Raises BL001 as above.
create or replace function kv_versions(p_events uuid[], p_after bigint, p_limit integer, out moved integer, out versions jsonb)
language plpgsql set enable_seqscan = off as $$
begin
    moved := log_advance(p_limit);
    perform require_accepted_leader(h.leader_id) from log_head h;
    select coalesce(jsonb_object_agg(l.event_id, jsonb_build_array(l.version, l.leader_id)), '{}') into versions
    from log l where l.version > p_after and l.event_id = any (p_events);
end $$;
